#include "kernels/selective_scan.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/tile_product.h"
#include "kernels/vector_math.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

float softplus(float x) {
  return x > 20.0f ? x : std::log1p(std::exp(x));
}

// The time steps of a head within a chunk. Decays are differences of running sums. These may be large where
// the two terms are nearly equal, so the sums are double.
struct Times {
  std::vector<float> raw, dt;      // before and after softplus
  std::vector<double> sum;         // a[0] + ... + a[i]
  std::vector<float> since_start;  // exp(sum[i]): what is left of the chunk's first state
  std::vector<float> to_end;  // exp(sum[q - 1] - sum[j]): what is left of token j's part at the chunk's end
  float whole = 1;            // exp(sum[q - 1])

  void load(ScanTimeSteps steps, std::int64_t row, std::int64_t head, std::int64_t q) {
    for (auto* v : {&raw, &dt, &since_start, &to_end}) v->resize(static_cast<std::size_t>(q));
    sum.resize(static_cast<std::size_t>(q));
    const double a = -std::exp(static_cast<double>(steps.a_log[head]));
    double total = 0;
    for (std::int64_t i = 0; i < q; ++i) {
      raw[i] = steps.inp[(row + i) * steps.stride + head] + steps.bias[head];
      dt[i] = softplus(raw[i]);
      sum[i] = total += static_cast<double>(dt[i]) * a;
      since_start[i] = static_cast<float>(std::exp(total));
    }
    for (std::int64_t j = 0; j < q; ++j) to_end[j] = static_cast<float>(std::exp(total - sum[j]));
    whole = static_cast<float>(std::exp(total));
  }
};

// out (columns, rows) = inp (rows, columns)^T; the rows of out lie `rows` apart.
KERNELS_MULTIVERSION void transpose(float* out, const float* inp, std::int64_t stride, std::int64_t rows,
                                    std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) out[c * rows + r] = inp[r * stride + c];
}

// out (rows, columns) = inp with each row multiplied by left[row] right[row].
KERNELS_MULTIVERSION void scale_rows(float* out, const float* inp, std::int64_t stride, const float* left,
                                     const float* right, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float factor = left[r] * (right != nullptr ? right[r] : 1.0f);
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) out[r * columns + c] = inp[r * stride + c] * factor;
  }
}

KERNELS_MULTIVERSION void scale(float* values, float factor, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) values[i] *= factor;
}

// out[r] += inp[r] factors[r] common, row by row.
KERNELS_MULTIVERSION void add_rows(float* out, std::int64_t out_stride, const float* inp,
                                   std::int64_t inp_stride, float common, const float* left,
                                   const float* right, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float factor = common * (left != nullptr ? left[r] * right[r] : 1.0f);
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) out[r * out_stride + c] += inp[r * inp_stride + c] * factor;
  }
}

KERNELS_MULTIVERSION float dot(const float* a, const float* b, std::int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// m (q, q): m[i, j] = cb[i, j] L[i, j] dt[j] for j <= i, else 0.
KERNELS_MULTIVERSION void mask_products(float* m, const float* cb, const double* sum, const float* dt,
                                        std::int64_t q) {
  for (std::int64_t i = 0; i < q; ++i) {
    float* row = m + i * q;
    const double here = sum[i];
#pragma omp simd
    for (std::int64_t j = 0; j <= i; ++j)
      row[j] = cb[i * q + j] * exp_approx(static_cast<float>(here - sum[j])) * dt[j];
#pragma omp simd
    for (std::int64_t j = i + 1; j < q; ++j) row[j] = 0;
  }
}

// The recurrence of one token and head: state (N, P), y (P).
KERNELS_MULTIVERSION void step(float* y, float* state, const float* x, const float* b, const float* c,
                               float decay, float dt, float skip, std::int64_t N, std::int64_t P) {
#pragma omp simd
  for (std::int64_t p = 0; p < P; ++p) y[p] = skip * x[p];
  for (std::int64_t n = 0; n < N; ++n) {
    float* row = state + n * P;
    const float in = b[n] * dt, out = c[n];
#pragma omp simd
    for (std::int64_t p = 0; p < P; ++p) {
      row[p] = decay * row[p] + in * x[p];
      y[p] += out * row[p];
    }
  }
}

// Where the parts of a chunk lie. Consecutive rows of x, B and C are columns() apart.
struct Rows {
  const float *xbc, *dout;
  SelectiveScanShape s;

  std::int64_t row(std::int64_t b, std::int64_t t) const { return b * s.T + t; }
  std::int64_t x_column(std::int64_t head) const { return head * s.P; }
  std::int64_t b_column(std::int64_t group) const { return s.inner() + group * s.N; }
  std::int64_t c_column(std::int64_t group) const { return s.inner() + (s.G + group) * s.N; }
  ConstMatrix x(std::int64_t r, std::int64_t head) const {
    return {xbc + r * s.columns() + x_column(head), s.columns()};
  }
  ConstMatrix b(std::int64_t r, std::int64_t group) const {
    return {xbc + r * s.columns() + b_column(group), s.columns()};
  }
  ConstMatrix c(std::int64_t r, std::int64_t group) const {
    return {xbc + r * s.columns() + c_column(group), s.columns()};
  }
  ConstMatrix dy(std::int64_t r, std::int64_t head) const {
    return {dout + r * s.inner() + head * s.P, s.inner()};
  }
};

// A thread's tiles, kept between calls.
struct Tiles {
  Times times;
  std::vector<float> cb, masked, turned, scaled, states;
  std::vector<float> dcb, dm, narrow, wide, ones;  // of the backward pass

  static Tiles& mine() {
    static thread_local Tiles tiles;
    return tiles;
  }
  static float* sized(std::vector<float>& v, std::int64_t count) {
    if (v.size() < static_cast<std::size_t>(count)) v.resize(static_cast<std::size_t>(count));
    return v.data();
  }
};

// cb (q, q) = C B^T of a group.
const float* state_products(Tiles& tiles, const Rows& rows, std::int64_t r, std::int64_t group,
                            std::int64_t q) {
  const std::int64_t N = rows.s.N;
  float* turned = Tiles::sized(tiles.turned, N * q);
  float* cb = Tiles::sized(tiles.cb, q * q);
  const ConstMatrix b = rows.b(r, group);
  transpose(turned, b.data, b.stride, q, N);
  tile_product({cb, q}, rows.c(r, group), {turned, q}, false, q, q, N);
  return cb;
}

// state = whole state + sum over j of to_end[j] dt[j] B[j] x[j]^T.
void carry_state(Tiles& tiles, float* state, const Rows& rows, std::int64_t r, std::int64_t head,
                 std::int64_t q) {
  const auto& s = rows.s;
  const Times& t = tiles.times;
  float* scaled = Tiles::sized(tiles.scaled, q * s.N);
  const ConstMatrix b = rows.b(r, head / (s.H / s.G));
  scale_rows(scaled, b.data, b.stride, t.to_end.data(), t.dt.data(), q, s.N);
  scale(state, t.whole, s.N * s.P);
  tile_product_transposed({state, s.P}, {scaled, s.N}, rows.x(r, head), true, s.N, s.P, q);
}

// A group's heads share C B^T. A task has so many of them that C B^T is computed seldom, and so few that many
// threads find work.
constexpr std::int64_t kHeadsAtOnce = 4;

// Computes y of one chunk and head, whose times are loaded, and carries its state to the chunk's end.
void forward_chunk(Tiles& tiles, float* y, float* state, bool state_is_zero, const float* cb,
                   const Rows& rows, std::int64_t r, std::int64_t head, float skip, std::int64_t q) {
  const auto& s = rows.s;
  const Times& t = tiles.times;
  float* masked = Tiles::sized(tiles.masked, q * q);
  const ConstMatrix x = rows.x(r, head), c = rows.c(r, head / (s.H / s.G));
  mask_products(masked, cb, t.sum.data(), t.dt.data(), q);
  tile_product({y, s.inner()}, {masked, q}, x, false, q, s.P, q);
  if (!state_is_zero) {
    float* scaled = Tiles::sized(tiles.scaled, q * s.N);
    scale_rows(scaled, c.data, c.stride, t.since_start.data(), nullptr, q, s.N);
    tile_product({y, s.inner()}, {scaled, s.N}, {state, s.P}, true, q, s.P, s.N);
  }
  add_rows(y, s.inner(), x.data, x.stride, skip, nullptr, nullptr, q, s.P);
  carry_state(tiles, state, rows, r, head, q);
}

// Sequence b, heads [first, last) of one group.
void forward_heads(float* out, float* state, const Rows& rows, ScanTimeSteps dt, const float* d,
                   bool from_zero, std::int64_t b, std::int64_t first, std::int64_t last) {
  const auto& s = rows.s;
  Tiles& tiles = Tiles::mine();
  const std::int64_t of_head = s.N * s.P, group = first / (s.H / s.G);
  float* states = state != nullptr ? state + (b * s.H + first) * of_head
                                   : Tiles::sized(tiles.states, kHeadsAtOnce * of_head);
  if (from_zero) std::fill_n(states, (last - first) * of_head, 0.0f);
  for (std::int64_t begin = 0; begin < s.T; begin += s.Q) {
    const std::int64_t q = std::min(s.Q, s.T - begin), r = rows.row(b, begin);
    const float* cb = q > 1 ? state_products(tiles, rows, r, group, q) : nullptr;
    for (std::int64_t head = first; head < last; ++head) {
      float* y = out + r * s.inner() + head * s.P;
      float* head_state = states + (head - first) * of_head;
      tiles.times.load(dt, r, head, q);
      if (q > 1)
        forward_chunk(tiles, y, head_state, from_zero && begin == 0, cb, rows, r, head, d[head], q);
      else
        step(y, head_state, rows.x(r, head).data, rows.b(r, group).data, rows.c(r, group).data,
             tiles.times.whole, tiles.times.dt[0], d[head], s.N, s.P);
    }
  }
}

// ---- backward

// For j <= i, with w = cb L: masked = w dt and dcb += dm L dt. The sums of z = dm w dt are over rows and over
// columns without the diagonal, whose parts cancel. direct[j] += dm w is the time step's own part. Sums are
// double: only differences of them are used, in which most of each cancels.
KERNELS_MULTIVERSION void mask_gradients(float* masked, float* dcb, double* row_sums, double* column_sums,
                                         float* direct, const float* dm, const float* cb, const double* sum,
                                         const float* dt, std::int64_t q) {
#pragma omp simd
  for (std::int64_t j = 0; j < q; ++j) column_sums[j] = 0, direct[j] = 0;
  for (std::int64_t i = 0; i < q; ++i) {
    const double here = sum[i];
    const std::int64_t at = i * q;
    double row_sum = 0;
#pragma omp simd reduction(+ : row_sum)
    for (std::int64_t j = 0; j < i; ++j) {
      const float decay = exp_approx(static_cast<float>(here - sum[j]));
      const float own = dm[at + j] * cb[at + j] * decay;
      const double z = own * dt[j];
      masked[at + j] = cb[at + j] * decay * dt[j];
      dcb[at + j] += dm[at + j] * decay * dt[j];
      row_sum += z;
      column_sums[j] += z;
      direct[j] += own;
    }
    masked[at + i] = cb[at + i] * dt[i];
    dcb[at + i] += dm[at + i] * dt[i];
    direct[i] += dm[at + i] * cb[at + i];
    row_sums[i] = row_sum;
#pragma omp simd
    for (std::int64_t j = i + 1; j < q; ++j) masked[at + j] = 0;
  }
}

// One sequence and group, from its last chunk to its first.
class GroupBackward {
 public:
  GroupBackward(const ScanGradients& out, float* states, float* head_sums, const Rows& rows, ScanTimeSteps dt,
                const float* d, std::int64_t b, std::int64_t group)
      : out_(out),
        states_(states),
        head_sums_(head_sums),
        rows_(rows),
        dt_(dt),
        d_(d),
        b_(b),
        group_(group),
        tiles_(Tiles::mine()) {}

  void run() {
    const std::int64_t heads = s().H / s().G;
    keep_states();
    dstate_.assign(static_cast<std::size_t>(heads * s().N * s().P), 0.0f);
    for (std::int64_t chunk = s().chunks() - 1; chunk >= 0; --chunk) backward_chunk(chunk);
  }

 private:
  const SelectiveScanShape& s() const { return rows_.s; }
  std::int64_t first_head() const { return group_ * (s().H / s().G); }
  std::int64_t last_head() const { return first_head() + s().H / s().G; }
  // The state before a chunk.
  float* state(std::int64_t head, std::int64_t chunk) const {
    return states_ + ((b_ * s().H + head) * s().chunks() + chunk) * s().N * s().P;
  }

  void keep_states() {
    const std::int64_t size = s().N * s().P;
    for (std::int64_t head = first_head(); head < last_head(); ++head) {
      std::fill_n(state(head, 0), size, 0.0f);
      for (std::int64_t chunk = 0; chunk + 1 < s().chunks(); ++chunk) {
        const std::int64_t r = rows_.row(b_, chunk * s().Q);
        std::copy_n(state(head, chunk), size, state(head, chunk + 1));
        tiles_.times.load(dt_, r, head, s().Q);
        carry_state(tiles_, state(head, chunk + 1), rows_, r, head, s().Q);
      }
    }
  }

  void backward_chunk(std::int64_t chunk) {
    const std::int64_t begin = chunk * s().Q, q = std::min(s().Q, s().T - begin), r = rows_.row(b_, begin);
    const std::int64_t columns = s().columns(), N = s().N;
    const float* cb = state_products(tiles_, rows_, r, group_, q);
    float* dcb = Tiles::sized(tiles_.dcb, q * q);
    std::fill_n(dcb, q * q, 0.0f);
    const Matrix db{out_.dxbc + r * columns + rows_.b_column(group_), columns};
    const Matrix dc{out_.dxbc + r * columns + rows_.c_column(group_), columns};
    for (std::int64_t i = 0; i < q; ++i) {
      std::fill_n(db.data + i * columns, N, 0.0f);
      std::fill_n(dc.data + i * columns, N, 0.0f);
    }
    for (std::int64_t head = first_head(); head < last_head(); ++head)
      backward_head(chunk, head, r, q, cb, dcb, db, dc);
    tile_product(dc, {dcb, q}, rows_.b(r, group_), true, q, N, q);
    tile_product_transposed(db, {dcb, q}, rows_.c(r, group_), true, q, N, q);
  }

  void backward_head(std::int64_t chunk, std::int64_t head, std::int64_t r, std::int64_t q, const float* cb,
                     float* dcb, Matrix db, Matrix dc) {
    tiles_.times.load(dt_, r, head, q);
    dsum_.assign(static_cast<std::size_t>(q), 0.0);
    ddt_.assign(static_cast<std::size_t>(q), 0.0f);
    through_masked(head, r, q, cb, dcb);
    if (chunk + 1 < s().chunks()) through_end_state(chunk, head, r, q, db);
    through_start_state(chunk, head, r, q, dc);
    finish_times(head, r, q);
  }

  // The backward pass of y = masked x + D x.
  void through_masked(std::int64_t head, std::int64_t r, std::int64_t q, const float* cb, float* dcb) {
    const Times& t = tiles_.times;
    const std::int64_t P = s().P;
    const ConstMatrix x = rows_.x(r, head), dy = rows_.dy(r, head);
    float* turned = Tiles::sized(tiles_.turned, std::max(P * q, s().N * q));
    float* dm = Tiles::sized(tiles_.dm, q * q);
    float* masked = Tiles::sized(tiles_.masked, q * q);
    transpose(turned, x.data, x.stride, q, P);
    tile_product({dm, q}, dy, {turned, q}, false, q, q, P);
    row_sums_.resize(static_cast<std::size_t>(q));
    column_sums_.resize(static_cast<std::size_t>(q));
    mask_gradients(masked, dcb, row_sums_.data(), column_sums_.data(), ddt_.data(), dm, cb, t.sum.data(),
                   t.dt.data(), q);
    for (std::int64_t i = 0; i < q; ++i) dsum_[i] += row_sums_[i] - column_sums_[i];
    const Matrix dx{out_.dxbc + r * s().columns() + rows_.x_column(head), s().columns()};
    tile_product_transposed(dx, {masked, q}, dy, false, q, P, q);
    add_rows(dx.data, dx.stride, dy.data, dy.stride, d_[head], nullptr, nullptr, q, P);
    for (std::int64_t i = 0; i < q; ++i)
      head_sum(head, 2) += dot(dy.data + i * dy.stride, x.data + i * x.stride, P);
  }

  // The backward pass of the chunk's part of the state at its end, whose gradient is dstate.
  void through_end_state(std::int64_t chunk, std::int64_t head, std::int64_t r, std::int64_t q, Matrix db) {
    const Times& t = tiles_.times;
    const std::int64_t N = s().N, P = s().P;
    const ConstMatrix x = rows_.x(r, head), b = rows_.b(r, group_);
    float* dstate = dstate_of(head);
    float* back = Tiles::sized(tiles_.narrow, q * P);  // B dstate
    tile_product({back, P}, b, {dstate, P}, false, q, P, N);
    double total = 0;
    for (std::int64_t j = 0; j < q; ++j) {
      const float own = t.to_end[j] * dot(back + j * P, x.data + j * x.stride, P);
      ddt_[j] += own;
      const double part = static_cast<double>(own) * static_cast<double>(t.dt[j]);
      dsum_[j] -= part;
      total += part;
    }
    dsum_[q - 1] +=
        total + static_cast<double>(t.whole) * static_cast<double>(dot(state(head, chunk), dstate, N * P));
    add_rows(out_.dxbc + r * s().columns() + rows_.x_column(head), s().columns(), back, P, 1, t.to_end.data(),
             t.dt.data(), q, P);
    float* turned = Tiles::sized(tiles_.wide, N * P);
    transpose(turned, dstate, P, N, P);
    scale_rows(back, x.data, x.stride, t.to_end.data(), t.dt.data(), q, P);
    tile_product(db, {back, P}, {turned, N}, true, q, N, P);
  }

  // The backward pass of y += since_start C state: also the gradient of that state.
  void through_start_state(std::int64_t chunk, std::int64_t head, std::int64_t r, std::int64_t q, Matrix dc) {
    if (chunk == 0) return;
    const Times& t = tiles_.times;
    const std::int64_t N = s().N, P = s().P;
    const ConstMatrix dy = rows_.dy(r, head), c = rows_.c(r, group_);
    float* decayed = Tiles::sized(tiles_.narrow, q * P);
    scale_rows(decayed, dy.data, dy.stride, t.since_start.data(), nullptr, q, P);
    float* turned = Tiles::sized(tiles_.wide, N * P);
    transpose(turned, state(head, chunk), P, N, P);
    float* own = Tiles::sized(tiles_.scaled, q * N);
    tile_product({own, N}, {decayed, P}, {turned, N}, false, q, N, P);
    for (std::int64_t i = 0; i < q; ++i)
      dsum_[i] += static_cast<double>(dot(own + i * N, c.data + i * c.stride, N));
    add_rows(dc.data, dc.stride, own, N, 1, nullptr, nullptr, q, N);
    float* dstate = dstate_of(head);
    scale(dstate, t.whole, N * P);
    tile_product_transposed({dstate, P}, c, {decayed, P}, true, N, P, q);
  }

  // sum[i] = a[0] + ... + a[i] with a = dt A: the gradient of a[k] is the sum of the gradients of sum[k] and
  // all later sums.
  void finish_times(std::int64_t head, std::int64_t r, std::int64_t q) {
    const Times& t = tiles_.times;
    const double a = -std::exp(static_cast<double>(dt_.a_log[head]));
    double later = 0, da = 0, dbias = 0;
    for (std::int64_t k = q - 1; k >= 0; --k) {
      later += dsum_[k];
      da += static_cast<double>(t.dt[k]) * later;
      const double ddt = static_cast<double>(ddt_[k]) + a * later;
      const double slope = 1.0 / (1.0 + std::exp(-static_cast<double>(t.raw[k])));
      out_.ddt[(r + k) * out_.ddt_stride + head] = static_cast<float>(ddt * slope);
      dbias += ddt * slope;
    }
    head_sum(head, 0) += static_cast<float>(dbias);
    head_sum(head, 1) += static_cast<float>(da * a);
  }

  float* dstate_of(std::int64_t head) { return dstate_.data() + (head - first_head()) * s().N * s().P; }
  float& head_sum(std::int64_t head, std::int64_t which) {
    return head_sums_[(b_ * s().H + head) * 3 + which];
  }

  ScanGradients out_;
  float *states_, *head_sums_;
  Rows rows_;
  ScanTimeSteps dt_;
  const float* d_;
  std::int64_t b_, group_;
  Tiles& tiles_;
  std::vector<float> dstate_, ddt_;
  std::vector<double> dsum_, row_sums_, column_sums_;
};

}  // namespace

void selective_scan_forward(float* out, float* state, const float* xbc, ScanTimeSteps dt, const float* d,
                            const std::int32_t* first_positions, SelectiveScanShape s) {
  const Rows rows{xbc, nullptr, s};
  const std::int64_t of_group = s.H / s.G, blocks = (of_group + kHeadsAtOnce - 1) / kHeadsAtOnce;
  parallel_tasks(s.B * s.G * blocks, [=](std::int64_t task) {
    const std::int64_t b = task / (s.G * blocks), group = task / blocks % s.G;
    const std::int64_t first = group * of_group + task % blocks * kHeadsAtOnce;
    const std::int64_t last = std::min(first + kHeadsAtOnce, (group + 1) * of_group);
    const bool from_zero = state == nullptr || first_positions == nullptr || first_positions[b] == 0;
    forward_heads(out, state, rows, dt, d, from_zero, b, first, last);
  });
}

std::int64_t selective_scan_scratch(SelectiveScanShape s) {
  return s.B * s.H * s.chunks() * s.N * s.P + 3 * s.B * s.H;
}

void selective_scan_backward(ScanGradients gradients, float* scratch, const float* dout, const float* xbc,
                             ScanTimeSteps dt, const float* d, SelectiveScanShape s) {
  const Rows rows{xbc, dout, s};
  float* head_sums = scratch + s.B * s.H * s.chunks() * s.N * s.P;
  std::fill_n(head_sums, 3 * s.B * s.H, 0.0f);
  parallel_tasks(s.B * s.G, [=](std::int64_t task) {
    GroupBackward(gradients, scratch, head_sums, rows, dt, d, task / s.G, task % s.G).run();
  });
  for (std::int64_t i = 0; i < s.B * s.H; ++i) {
    const std::int64_t head = i % s.H;
    gradients.dbias[head] += head_sums[3 * i];
    gradients.da_log[head] += head_sums[3 * i + 1];
    gradients.dd[head] += head_sums[3 * i + 2];
  }
}

}  // namespace kernels::cpu
