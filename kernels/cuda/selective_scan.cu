// The scan as its recurrence, a block for each head of a sequence: each thread has 16 numbers of the state in
// registers, and eight tokens' rows at a time lie in shared memory.
//
// Its gradients are two scans of the same form, S[t] = decay S[t'] + m[t] w[t] v[t]^T:
//   forward in time    m w v^T = dt B x^T, the state itself:          y = S^T C and dC = S dy
//   backward in time   m w v^T = C dy^T, the state's gradient D:      dx = dt D^T B and dB = dt D x
// Each is run twice: by columns of the state (y, dx), which leaves the state before each chunk in memory, and
// by rows (dC, dB), with all chunks side by side, where the heads of a group are added up. What remains is
// the decays' gradient. With a[t] the exponent of token t's decay:
//   dL/da[t] = <D[t], S[t]> - dt[t] (x D^T B)[t] = dL/da[t + 1] + dy[t] (S^T C)[t] - dt[t] (x D^T B)[t],
// a sum from the last token to the first, whose terms mostly cancel where states decay fast. Its two
// products, and the states they are taken from, are therefore double, which takes these GPUs only twice the
// time of fp32.
#include "kernels/cuda/norm.h"
#include "kernels/cuda/state_space.h"

namespace kernels::cuda {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kOwn = 16;  // numbers of the state in a thread
// A block with states in double has few enough threads to leave each one the registers that it needs.
constexpr int kMostThreadsOfDoubles = 512, kMostThreadsOfFewDoubles = 384;
constexpr int kBatch = 8;  // tokens
constexpr std::int64_t kMostShared = 160 << 10;

template <class T>
struct Input {
  const T *xbc, *dy, *dt;  // dy may be null
  std::int64_t dt_stride;
  const T* heads;
  SelectiveScanShape s;

  CUDA_DEVICE std::int64_t x(std::int64_t row, std::int64_t h) const { return row * s.columns() + h * s.P; }
  CUDA_DEVICE std::int64_t b(std::int64_t row, std::int64_t g) const {
    return row * s.columns() + s.H * s.P + g * s.N;
  }
  CUDA_DEVICE std::int64_t c(std::int64_t row, std::int64_t g) const { return b(row, g) + s.G * s.N; }
  CUDA_DEVICE float raw(std::int64_t row, std::int64_t h) const {
    return to_float(dt[row * dt_stride + h]) + to_float(heads[h]);
  }
  CUDA_DEVICE float step(std::int64_t row, std::int64_t h) const {
    const float r = raw(row, h);
    return r > 20 ? r : log1pf(expf(r));
  }
  CUDA_DEVICE float rate(std::int64_t h) const { return -expf(to_float(heads[s.H + h])); }
  CUDA_DEVICE float skip(std::int64_t h) const { return to_float(heads[2 * s.H + h]); }
  CUDA_DEVICE float dy_or_0(std::int64_t row, std::int64_t h, std::int64_t p) const {
    return dy != nullptr ? to_float(dy[(row * s.H + h) * s.P + p]) : 0.0f;
  }
};

// A token's factors for the state before it and for what is added to it, and its time step.
struct Factors {
  float decay, added, step;
};
template <bool Reverse, class T>
CUDA_DEVICE Factors factors_of(const Input<T>& in, std::int64_t b, std::int64_t t, std::int64_t h) {
  const std::int64_t row = b * in.s.T + t;
  const float step = in.step(row, h), rate = in.rate(h);
  if (!Reverse) return {expf(step * rate), step, step};
  return {t + 1 < in.s.T ? expf(in.step(row + 1, h) * rate) : 1.0f, 1, step};
}

// What a batch of tokens needs, in shared memory: w (kBatch, N), v and z (kBatch, P), then the rest.
struct Staged {
  float *w, *r, *v, *z;
  Factors* factors;
  void* partials;

  CUDA_DEVICE Staged(float* memory, int N, int P) {
    w = memory;
    r = w + kBatch * N;
    v = r + kBatch * N;
    z = v + kBatch * P;
    factors = reinterpret_cast<Factors*>(z + kBatch * P);
    partials = factors + kBatch;
  }
};
constexpr std::int64_t staged_floats(std::int64_t N, std::int64_t P) {
  return 2 * kBatch * (N + P) + 3 * kBatch;  // a multiple of 8 bytes
}

// Loads `count` tokens, from number `first` of the scan on; the scan covers `tokens` from `begin` on.
template <bool Reverse, class T>
CUDA_DEVICE void stage(const Staged& to, const Input<T>& in, std::int64_t b, std::int64_t h, int begin,
                       int tokens, int first, int count) {
  const int N = static_cast<int>(in.s.N), P = static_cast<int>(in.s.P);
  const std::int64_t group = h / (in.s.H / in.s.G);
  const auto row_of = [&](int k) {
    return b * in.s.T + begin + (Reverse ? tokens - 1 - first - k : first + k);
  };
  for (int i = thread_index(); i < count * N; i += block_size()) {
    const std::int64_t row = row_of(i / N);
    const float of_b = to_float(in.xbc[in.b(row, group) + i % N]),
                of_c = to_float(in.xbc[in.c(row, group) + i % N]);
    to.w[i] = Reverse ? of_c : of_b;
    to.r[i] = Reverse ? of_b : of_c;
  }
  for (int i = thread_index(); i < count * P; i += block_size()) {
    const std::int64_t row = row_of(i / P);
    const float x = to_float(in.xbc[in.x(row, h) + i % P]), dy = in.dy_or_0(row, h, i % P);
    to.v[i] = Reverse ? dy : x;
    to.z[i] = Reverse ? x : dy;
  }
  if (thread_index() < count)
    to.factors[thread_index()] = factors_of<Reverse>(
        in, b, begin + (Reverse ? tokens - 1 - first - thread_index() : first + thread_index()), h);
}

// What a scan writes; of the recurrence's results, `out` and all the others may be null.
template <class T>
struct Results {
  T* out;
  std::int64_t out_stride;        // from a token's row to the next; heads lie P apart
  float* state;                   // (B, H, N, P), in and out
  const std::int32_t* positions;  // (B), null or 0: the state begins as zero
  float* states;                  // (B, chunks, H, N, P): the state before each chunk
  double* products;               // (B, T, H): the result times z
  float* skips;                   // (B, T, H): v times z
};

// Grid: (H, B). Threads: P by parts of Own rows of the state. Shared memory: staged_floats, (kBatch, parts,
// P).
template <class T, bool Reverse, class Real, int Own>
CUDA_KERNEL(sizeof(Real) == 4 ? kMostThreads
            : Own > kOwn      ? kMostThreadsOfDoubles
                              : kMostThreadsOfFewDoubles)
scan_kernel(Input<T> in, Results<T> results) {
  const int N = static_cast<int>(in.s.N), P = static_cast<int>(in.s.P), tokens = static_cast<int>(in.s.T);
  const int h = block_index().x, b = block_index().y, parts = (N + Own - 1) / Own;
  const int p = thread_index() % P, part = thread_index() / P;
  const Staged staged(shared_memory<float>(), N, P);
  const int own = part < parts ? (N - part * Own < Own ? N - part * Own : Own) : 0;
  const std::int64_t of_head = static_cast<std::int64_t>(part) * Own * P + p, size = in.s.N * in.s.P;

  Real* const partials = static_cast<Real*>(staged.partials);
  Real state[Own] = {};
  if (results.state != nullptr && results.positions != nullptr && results.positions[b] != 0) {
    const float* const from = results.state + (b * in.s.H + h) * size + of_head;
#pragma unroll
    for (int i = 0; i < Own; ++i)
      if (i < own) state[i] = static_cast<Real>(from[i * P]);
  }
  for (int first = 0; first < tokens; first += kBatch) {
    const int count = tokens - first < kBatch ? tokens - first : kBatch;
    sync_block();  // all threads have read the batch before
    stage<Reverse>(staged, in, b, h, 0, tokens, first, count);
    sync_block();
    for (int k = 0; k < count && own > 0; ++k) {
      const int t = Reverse ? tokens - 1 - first - k : first + k, Q = static_cast<int>(in.s.Q);
      const bool begins = Reverse ? t % Q == Q - 1 || t == tokens - 1 : t % Q == 0;
      if (results.states != nullptr && begins) {
        float* const to = results.states + ((b * in.s.chunks() + t / Q) * in.s.H + h) * size + of_head;
#pragma unroll
        for (int i = 0; i < Own; ++i)
          if (i < own) to[i * P] = static_cast<float>(state[i]);
      }
      const Factors f = staged.factors[k];
      const Real added = static_cast<Real>(f.added) * static_cast<Real>(staged.v[k * P + p]);
      const Real decay = static_cast<Real>(f.decay);
      Real sum = 0;
#pragma unroll
      for (int i = 0; i < Own; ++i)
        if (i < own) {
          state[i] = decay * state[i] + added * static_cast<Real>(staged.w[k * N + part * Own + i]);
          sum += static_cast<Real>(staged.r[k * N + part * Own + i]) * state[i];
        }
      partials[(k * parts + part) * P + p] = sum;
    }
    sync_block();
    // A warp a token.
    for (int k = warp_index(); k < count; k += block_size() / kWarp) {
      const std::int64_t row =
          static_cast<std::int64_t>(b) * tokens + (Reverse ? tokens - 1 - first - k : first + k);
      const float factor = Reverse ? staged.factors[k].step : 1.0f, skip = in.skip(h);
      Real product = 0;
      float skipped = 0;
      for (int d = lane_index(); d < P; d += kWarp) {
        Real y = 0;
        for (int i = 0; i < parts; ++i) y += partials[(k * parts + i) * P + d];
        product += y * static_cast<Real>(staged.z[k * P + d]);
        skipped += staged.v[k * P + d] * staged.z[k * P + d];
        if (results.out != nullptr)
          results.out[row * results.out_stride + h * P + d] =
              from_float<T>(factor * static_cast<float>(y) + skip * staged.v[k * P + d]);
      }
#pragma unroll
      for (int distance = kWarp / 2; distance > 0; distance /= 2) product += shuffle_xor(product, distance);
      skipped = warp_sum(skipped);
      if (lane_index() == 0 && results.products != nullptr)
        results.products[row * in.s.H + h] = static_cast<double>(product);
      if (lane_index() == 0 && results.skips != nullptr) results.skips[row * in.s.H + h] = skipped;
    }
  }
  if (results.state == nullptr) return;
  float* const to = results.state + (b * in.s.H + h) * size + of_head;
#pragma unroll
  for (int i = 0; i < Own; ++i)
    if (i < own) to[i * P] = static_cast<float>(state[i]);
}

// dC of a group, or in reverse dB: the state's rows times z, summed over the heads of the group. Grid:
// (chunks, G, B). Threads: N by parts of kOwn columns of the state. Shared memory: (Q, N), staged_floats,
// (kBatch, parts, N).
template <class T, bool Reverse>
CUDA_KERNEL(kMostThreads)
scan_rows_kernel(Input<T> in, T* dxbc, const float* states) {
  const int N = static_cast<int>(in.s.N), P = static_cast<int>(in.s.P), Q = static_cast<int>(in.s.Q);
  const int chunk = block_index().x, g = block_index().y, b = block_index().z, parts = (P + kOwn - 1) / kOwn;
  const int begin = chunk * Q;
  const int tokens = static_cast<int>(in.s.T) - begin < Q ? static_cast<int>(in.s.T) - begin : Q;
  const int n = thread_index() % N, part = thread_index() / N;
  const int own = part < parts ? (P - part * kOwn < kOwn ? P - part * kOwn : kOwn) : 0;
  float* const sums = shared_memory<float>();
  const Staged staged(sums + Q * N, N, P);
  float* const partials = static_cast<float*>(staged.partials);
  for (int i = thread_index(); i < tokens * N; i += block_size()) sums[i] = 0;

  const int heads = static_cast<int>(in.s.H / in.s.G);
  for (int h = g * heads; h < (g + 1) * heads; ++h) {
    const float* const from = states + ((b * in.s.chunks() + chunk) * in.s.H + h) * in.s.N * in.s.P +
                              static_cast<std::int64_t>(n) * P + part * kOwn;
    float state[kOwn] = {};
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      if (i < own) state[i] = from[i];
    for (int first = 0; first < tokens; first += kBatch) {
      const int count = tokens - first < kBatch ? tokens - first : kBatch;
      sync_block();
      stage<Reverse>(staged, in, b, h, begin, tokens, first, count);
      sync_block();
      for (int k = 0; k < count && own > 0; ++k) {
        const Factors f = staged.factors[k];
        const float added = f.added * staged.w[k * N + n];
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
          if (i < own) {
            state[i] = f.decay * state[i] + added * staged.v[k * P + part * kOwn + i];
            sum += staged.z[k * P + part * kOwn + i] * state[i];
          }
        partials[(k * parts + part) * N + n] = sum;
      }
      sync_block();
      for (int i = thread_index(); i < count * N; i += block_size()) {
        const int k = i / N, token = Reverse ? tokens - 1 - first - k : first + k;
        float sum = 0;
        for (int j = 0; j < parts; ++j) sum += partials[(k * parts + j) * N + i % N];
        sums[token * N + i % N] += (Reverse ? staged.factors[k].step : 1.0f) * sum;
      }
    }
  }
  sync_block();
  for (int i = thread_index(); i < tokens * N; i += block_size()) {
    const std::int64_t row = b * in.s.T + begin + i / N;
    dxbc[(Reverse ? in.b(row, g) : in.c(row, g)) + i % N] = from_float<T>(sums[i]);
  }
}

// A thread for each head of a sequence, from the last token to the first. of_heads (B, 3 H).
constexpr int kHeadThreads = 64;
template <class T>
CUDA_KERNEL(kHeadThreads)
scan_steps_kernel(T* ddt, std::int64_t ddt_stride, float* of_heads, Input<T> in, const double* outputs,
                  const double* inputs, const float* skips) {
  const std::int64_t i = static_cast<std::int64_t>(block_index().x) * kHeadThreads + thread_index();
  if (i >= in.s.B * in.s.H) return;
  const std::int64_t b = i / in.s.H, h = i % in.s.H;
  const float rate = in.rate(h);
  double decay = 0, bias = 0, a_log = 0, skip = 0;
#pragma unroll 4
  for (std::int64_t t = in.s.T - 1; t >= 0; --t) {
    const std::int64_t row = b * in.s.T + t, at = row * in.s.H + h;
    const float step = in.step(row, h), direct = static_cast<float>(inputs[at]);
    decay += outputs[at] - static_cast<double>(step) * inputs[at];
    const float of_decay = static_cast<float>(decay);
    const float slope = (direct + of_decay * rate) / (1 + expf(-in.raw(row, h)));
    ddt[row * ddt_stride + h] = from_float<T>(slope);
    bias += static_cast<double>(slope);
    a_log += static_cast<double>(of_decay * step * rate);
    skip += static_cast<double>(skips[at]);
  }
  float* const to = of_heads + b * 3 * in.s.H + h;
  to[0] = static_cast<float>(bias);
  to[in.s.H] = static_cast<float>(a_log);
  to[2 * in.s.H] = static_cast<float>(skip);
}

std::int64_t parts_of(std::int64_t numbers, int own = kOwn) {
  return ceil_div(numbers, own);
}
// How many numbers of a state in double a thread has.
int own_doubles(SelectiveScanShape s) {
  return s.P * parts_of(s.N) <= kMostThreadsOfFewDoubles ? kOwn : 2 * kOwn;
}
std::int64_t rows_floats(SelectiveScanShape s) {
  return s.Q * s.N + staged_floats(s.N, s.P) + kBatch * parts_of(s.P) * s.N;
}
int whole_warps(std::int64_t threads) {
  return static_cast<int>(ceil_div(threads, kWarp) * kWarp);
}
std::size_t bytes_of(std::int64_t floats) {
  return static_cast<std::size_t>(floats) * sizeof(float);
}

template <bool Reverse, class Real, int Own, class T>
void scan_by(const Context& context, const Input<T>& in, const Results<T>& results) {
  const SelectiveScanShape& s = in.s;
  const std::int64_t parts = parts_of(s.N, Own);
  const auto partials = static_cast<std::size_t>(kBatch * parts * s.P) * sizeof(Real);
  start(context,
        {.grid = {static_cast<int>(s.H), static_cast<int>(s.B), 1},
         .threads = whole_warps(s.P * parts),
         .shared_bytes = bytes_of(staged_floats(s.N, s.P)) + partials},
        scan_kernel<T, Reverse, Real, Own>, in, results);
}
template <bool Reverse, class T>
void scan_in_double(const Context& context, const Input<T>& in, const Results<T>& results) {
  own_doubles(in.s) == kOwn ? scan_by<Reverse, double, kOwn>(context, in, results)
                            : scan_by<Reverse, double, 2 * kOwn>(context, in, results);
}
template <bool Reverse, class T>
void scan_rows(const Context& context, const Input<T>& in, T* dxbc, const float* states) {
  const SelectiveScanShape& s = in.s;
  start(context,
        {.grid = {static_cast<int>(s.chunks()), static_cast<int>(s.G), static_cast<int>(s.B)},
         .threads = whole_warps(s.N * parts_of(s.P)),
         .shared_bytes = bytes_of(rows_floats(s))},
        scan_rows_kernel<T, Reverse>, in, dxbc, states);
}

}  // namespace

bool scan_takes(SelectiveScanShape s) {
  return s.P * parts_of(s.N) <= kMostThreads && s.P * parts_of(s.N, 2 * kOwn) <= kMostThreadsOfDoubles &&
         s.N * parts_of(s.P) <= kMostThreads &&
         rows_floats(s) * static_cast<std::int64_t>(sizeof(float)) <= kMostShared;
}

void selective_scan_forward(const Context& context, Tensor out, float* state, ConstTensor xbc,
                            ConstColumns dt, ConstTensor heads, const std::int32_t* first_positions,
                            SelectiveScanShape s) {
  with_type(out.type, [&]<class T>(T) {
    const Input<T> in{xbc.as<T>(), nullptr, dt.first.as<T>(), dt.stride, heads.as<T>(), s};
    scan_by<false, float, kOwn>(
        context, in, Results<T>{out.as<T>(), s.inner(), state, first_positions, nullptr, nullptr, nullptr});
  });
}

void selective_scan_backward(const Context& context, Tensor dxbc, WritableColumns ddt, Tensor dheads,
                             float* states, ConstTensor dout, ConstTensor xbc, ConstColumns dt,
                             ConstTensor heads, SelectiveScanShape s) {
  const std::int64_t steps = s.B * s.T * s.H;
  const std::int64_t doubles = 2 * steps, floats = steps + 3 * s.B * s.H;
  constexpr std::int64_t kDouble = sizeof(double), kFloat = sizeof(float);
  double* const outputs =
      reinterpret_cast<double*>(context.scratch_for<std::byte>(doubles * kDouble + floats * kFloat));
  double* const inputs = outputs + steps;
  float* const skips = reinterpret_cast<float*>(inputs + steps);
  float* const of_heads = skips + steps;
  with_type(dxbc.type, [&]<class T>(T) {
    const Input<T> in{xbc.as<T>(), dout.as<T>(), dt.first.as<T>(), dt.stride, heads.as<T>(), s};
    T* const gradient = dxbc.as<T>();
    scan_in_double<false>(context, in, Results<T>{nullptr, 0, nullptr, nullptr, states, outputs, skips});
    scan_rows<false, T>(context, in, gradient, states);
    scan_in_double<true>(context, in,
                         Results<T>{gradient, s.columns(), nullptr, nullptr, states, inputs, nullptr});
    scan_rows<true, T>(context, in, gradient, states);
    start(context,
          {.grid = {static_cast<int>(ceil_div(s.B * s.H, kHeadThreads)), 1, 1}, .threads = kHeadThreads},
          scan_steps_kernel<T>, ddt.first.as<T>(), ddt.stride, of_heads, in, outputs, inputs, skips);
  });
  add_column_sums(context.behind(doubles * kDouble + floats * kFloat), dheads, {of_heads, Type::f32}, nullptr,
                  s.B, 3 * s.H);
}

}  // namespace kernels::cuda
