#include "kernels/bf16_rows.h"

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/activation.h"
#include "kernels/attention_packed.h"
#include "kernels/bf16_values.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding_rows.h"
#include "kernels/layernorm.h"
#include "kernels/parallel.h"
#include "kernels/rmsnorm.h"
#include "kernels/row_chunks.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

// How many floats are worked on at a time: few enough that the fp32 kernels stay on the calling thread, which
// is already one of the threads that share the rows.
constexpr std::int64_t kBlock = 2048;

// The calling thread's scratch number `slot`.
float* scratch(std::size_t slot, std::int64_t count) {
  static thread_local std::array<std::vector<float>, 8> storage;
  std::vector<float>& all = storage[slot];
  if (all.size() < static_cast<std::size_t>(count)) all.resize(static_cast<std::size_t>(count));
  return all.data();
}

float* widened(std::size_t slot, const bf16* from, std::int64_t count) {
  float* const to = scratch(slot, count);
  widen(to, from, count);
  return to;
}

// Calls body(first row, rows) on blocks of R rows that touch `width` floats each.
template <class Body>
void blocks_of(std::int64_t begin, std::int64_t end, std::int64_t width, const Body& body) {
  const std::int64_t rows = std::max<std::int64_t>(1, kBlock / width);
  for (std::int64_t first = begin; first < end; first += rows) body(first, std::min(rows, end - first));
}
template <class Body>
void in_blocks(std::int64_t R, std::int64_t width, const Body& body) {
  parallel_ranges(R, width,
                  [&](std::int64_t begin, std::int64_t end) { blocks_of(begin, end, width, body); });
}

// sums += gradient's sums, rounded once.
void join(bf16* to, const float* sums, std::int64_t count) {
  float* const all = widened(7, to, count);
  for (std::int64_t i = 0; i < count; ++i) all[i] += sums[i];
  narrow(to, all, count);
}

}  // namespace

void embedding_forward(bf16* out, const std::int32_t* tokens, const bf16* weight, const bf16* position_weight,
                       const std::int32_t* positions, EmbeddingShape s) {
  embed_rows(
      out, tokens, position_weight, positions, s,
      [=](bf16* row, std::int64_t token) { std::copy_n(weight + token * s.C, s.C, row); },
      [=](bf16* row, const bf16* position) { add(row, row, position, 1, s.C); });
}

void embedding_backward(bf16* dweight, bf16* dposition_weight, const bf16* dout, const std::int32_t* tokens,
                        EmbeddingShape s) {
  const std::int64_t R = s.B * s.T;
  const auto sum_rows = [=](bf16* to, std::int64_t count, const auto& row_at) {
    float* const sums = scratch(0, s.C);
    std::fill_n(sums, s.C, 0.0f);
    for (std::int64_t i = 0; i < count; ++i) {
      const float* const row = widened(1, dout + row_at(i) * s.C, s.C);
      for (std::int64_t c = 0; c < s.C; ++c) sums[c] += row[c];
    }
    join(to, sums, s.C);
  };
  // Rows sorted by token; rows of the same token keep their order.
  static thread_local std::vector<std::int64_t> order, firsts;
  order.clear();
  for (std::int64_t r = 0; r < R; ++r)
    if (s.has(tokens[r])) order.push_back(r);
  const auto own = static_cast<std::int64_t>(order.size());  // rows of this part of the vocabulary
  std::sort(order.begin(), order.end(), [=](std::int64_t a, std::int64_t b) {
    return tokens[a] != tokens[b] ? tokens[a] < tokens[b] : a < b;
  });
  firsts.clear();
  for (std::int64_t i = 0; i < own; ++i)
    if (i == 0 ||
        tokens[order[static_cast<std::size_t>(i)]] != tokens[order[static_cast<std::size_t>(i - 1)]])
      firsts.push_back(i);
  firsts.push_back(own);
  const std::int64_t *const rows = order.data(), *const first = firsts.data();
  const auto distinct = static_cast<std::int64_t>(firsts.size()) - 1;
  parallel_ranges(distinct, 4 * s.C, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      sum_rows(dweight + (tokens[rows[first[i]]] - s.first) * s.C, first[i + 1] - first[i],
               [=](std::int64_t j) { return rows[first[i] + j]; });
  });
  if (!dposition_weight) return;
  parallel_ranges(s.T, s.B * s.C, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      sum_rows(dposition_weight + t * s.C, s.B, [=](std::int64_t b) { return b * s.T + t; });
  });
}

void layernorm_forward(bf16* out, float* mean, float* rstd, const bf16* inp, const bf16* weight,
                       const bf16* bias, float eps, std::int64_t R, std::int64_t C) {
  const float* const w = weight ? widened(5, weight, C) : nullptr;
  const float* const b = bias ? widened(6, bias, C) : nullptr;
  in_blocks(R, C, [=](std::int64_t r, std::int64_t rows) {
    float* const wide = scratch(0, rows * C);
    layernorm_forward(wide, mean ? mean + r : nullptr, rstd ? rstd + r : nullptr,
                      widened(1, inp + r * C, rows * C), w, b, eps, rows, C);
    narrow(out + r * C, wide, rows * C);
  });
}

void layernorm_backward(bf16* dinp, bf16* dweight, bf16* dbias, const bf16* dout, const bf16* inp,
                        const bf16* weight, const float* mean, const float* rstd, std::int64_t R,
                        std::int64_t C) {
  const float* const w = weight ? widened(5, weight, C) : nullptr;
  float* const total = scratch(6, 2 * C);
  std::fill_n(total, 2 * C, 0.0f);
  sum_over_row_chunks(
      R, 2 * C,
      [=](float* partial, std::int64_t begin, std::int64_t end) {
        blocks_of(begin, end, C, [=](std::int64_t r, std::int64_t rows) {
          float* const gradient = widened(0, dinp + r * C, rows * C);
          layernorm_backward(gradient, partial, partial + C, widened(1, dout + r * C, rows * C),
                             widened(2, inp + r * C, rows * C), w, mean + r, rstd + r, rows, C);
          narrow(dinp + r * C, gradient, rows * C);
        });
      },
      [=](const float* partial) {
        for (std::int64_t c = 0; c < 2 * C; ++c) total[c] += partial[c];
      });
  if (dweight) join(dweight, total, C);
  if (dbias) join(dbias, total + C, C);
}

void rmsnorm_forward(bf16* out, float* rstd, const bf16* inp, const bf16* weight, float eps, std::int64_t R,
                     std::int64_t C) {
  const float* const w = widened(5, weight, C);
  in_blocks(R, C, [=](std::int64_t r, std::int64_t rows) {
    float* const wide = scratch(0, rows * C);
    rmsnorm_forward(wide, rstd ? rstd + r : nullptr, widened(1, inp + r * C, rows * C), w, eps, rows, C);
    narrow(out + r * C, wide, rows * C);
  });
}

void rmsnorm_backward(bf16* dinp, bf16* dweight, const bf16* dout, const bf16* inp, const bf16* weight,
                      const float* rstd, std::int64_t R, std::int64_t C) {
  const float* const w = widened(5, weight, C);
  float* const total = scratch(6, C);
  std::fill_n(total, C, 0.0f);
  sum_over_row_chunks(
      R, C,
      [=](float* partial, std::int64_t begin, std::int64_t end) {
        blocks_of(begin, end, C, [=](std::int64_t r, std::int64_t rows) {
          float* const gradient = widened(0, dinp + r * C, rows * C);
          rmsnorm_backward(gradient, partial, widened(1, dout + r * C, rows * C),
                           widened(2, inp + r * C, rows * C), w, rstd + r, rows, C);
          narrow(dinp + r * C, gradient, rows * C);
        });
      },
      [=](const float* partial) {
        for (std::int64_t c = 0; c < C; ++c) total[c] += partial[c];
      });
  if (dweight) join(dweight, total, C);
}

void activation_forward(ActivationForward kernel, bf16* out, const bf16* inp, std::int64_t R,
                        std::int64_t F) {
  in_blocks(R, F, [=](std::int64_t r, std::int64_t rows) {
    float* const wide = scratch(0, rows * F);
    kernel(wide, widened(1, inp + r * F, rows * F), rows, F);
    narrow(out + r * F, wide, rows * F);
  });
}

void activation_backward(ActivationBackward kernel, bf16* dinp, const bf16* dout, const bf16* inp,
                         std::int64_t R, std::int64_t F) {
  in_blocks(R, F, [=](std::int64_t r, std::int64_t rows) {
    float* const wide = scratch(0, rows * F);
    kernel(wide, widened(1, dout + r * F, rows * F), widened(2, inp + r * F, rows * F), rows, F);
    narrow(dinp + r * F, wide, rows * F);
  });
}

namespace {

// The gains of queries and keys in fp32, in memory that the caller keeps; null where there are none.
const float* widened_gains(std::vector<float>& storage, const bf16* weight, QkNormShape s) {
  if (!weight) return nullptr;
  storage.resize(static_cast<std::size_t>(s.all_heads ? (s.H + s.G) * s.D : 2 * s.D));
  widen(storage.data(), weight, static_cast<std::int64_t>(storage.size()));
  return storage.data();
}

}  // namespace

void qk_norm_forward(bf16* out, float* rstd, const bf16* inp, const bf16* weight, float eps, QkNormShape s) {
  static thread_local std::vector<float> storage;
  const float* const gains = widened_gains(storage, weight, s);
  const std::int64_t width = (s.H + 2 * s.G) * s.D, heads = s.H + s.G;
  in_blocks(s.R, width, [=](std::int64_t r, std::int64_t rows) {
    float* const wide = scratch(0, rows * width);
    QkNormShape part = s;
    part.R = rows;
    qk_norm_forward(wide, rstd ? rstd + r * heads : nullptr, widened(1, inp + r * width, rows * width), gains,
                    eps, part);
    narrow(out + r * width, wide, rows * width);
  });
}

void qk_norm_backward(bf16* dqkv, bf16* dweight, const bf16* inp, const bf16* weight, const float* rstd,
                      QkNormShape s) {
  static thread_local std::vector<float> storage, total;
  const float* const gains = widened_gains(storage, weight, s);
  const std::int64_t width = (s.H + 2 * s.G) * s.D, heads = s.H + s.G;
  const std::int64_t count = s.all_heads ? heads * s.D : 2 * s.D;
  total.assign(static_cast<std::size_t>(count), 0.0f);
  sum_over_row_chunks(
      s.R, count,
      [=](float* partial, std::int64_t begin, std::int64_t end) {
        blocks_of(begin, end, width, [=](std::int64_t r, std::int64_t rows) {
          float* const wide = widened(0, dqkv + r * width, rows * width);
          QkNormShape part = s;
          part.R = rows;
          qk_norm_backward(wide, partial, widened(1, inp + r * width, rows * width), gains, rstd + r * heads,
                           part);
          narrow(dqkv + r * width, wide, rows * width);
        });
      },
      [=](const float* partial) {
        for (std::int64_t c = 0; c < count; ++c) total[static_cast<std::size_t>(c)] += partial[c];
      });
  if (dweight) join(dweight, total.data(), count);
}

void take_columns(bf16* out, const bf16* inp, float scale, std::int64_t R, Columns columns) {
  in_blocks(R, columns.C, [=](std::int64_t r, std::int64_t rows) {
    for (std::int64_t i = r; i < r + rows; ++i) {
      float* const wide = widened(0, inp + i * columns.width + columns.first, columns.C);
      for (std::int64_t c = 0; c < columns.C; ++c) wide[c] *= scale;
      narrow(out + i * columns.C, wide, columns.C);
    }
  });
}

void add(bf16* out, const bf16* a, const bf16* b, std::int64_t R, std::int64_t C) {
  in_blocks(R * C, 1, [=](std::int64_t i, std::int64_t count) {
    if (!b) {
      std::copy_n(a + i, count, out + i);
      return;
    }
    float* const wide = scratch(2, count);
    add(wide, widened(3, a + i, count), widened(4, b + i, count), 1, count);
    narrow(out + i, wide, count);
  });
}

namespace {

// Calls rotate(rows in fp32, the table's row for the first of them, count) on blocks of a sequence's rows.
template <class Rotate>
void rope_blocks(bf16* qkv, const float* table, const std::int32_t* positions, RopeShape s,
                 const Rotate& rotate) {
  const std::int64_t width = (s.H + 2 * s.G) * s.D;
  in_blocks(s.B * s.T, width, [=](std::int64_t first, std::int64_t rows) {
    for (std::int64_t row = first; row < first + rows;) {
      const std::int64_t count = std::min(first + rows - row, s.T - row % s.T);
      const std::int64_t position = (positions ? positions[row / s.T] : 0) + row % s.T;
      float* const wide = widened(0, qkv + row * width, count * width);
      rotate(wide, table + position * s.D, RopeShape{1, count, s.H, s.G, s.D});
      narrow(qkv + row * width, wide, count * width);
      row += count;
    }
  });
}

}  // namespace

void rope_forward(bf16* qkv, const float* table, const std::int32_t* positions, RopeShape s) {
  rope_blocks(qkv, table, positions, s, [](float* rows, const float* angles, RopeShape of_rows) {
    rope_forward(rows, angles, nullptr, of_rows);
  });
}

void rope_backward(bf16* dqkv, const float* table, RopeShape s) {
  rope_blocks(dqkv, table, nullptr, s, [](float* rows, const float* angles, RopeShape of_rows) {
    rope_backward(rows, angles, of_rows);
  });
}

namespace {

// Copies `count` heads of D for each of T rows, between packed rows of `width` floats, from head `first` on,
// and a tensor (T, heads_here, D), from head `at` on.
struct HeadCopy {
  std::int64_t T, D, width, heads_here;

  void widen_heads(float* to, std::int64_t at, const bf16* from, std::int64_t first,
                   std::int64_t count) const {
    for (std::int64_t t = 0; t < T; ++t)
      widen(to + (t * heads_here + at) * D, from + t * width + first * D, count * D);
  }
  void narrow_heads(bf16* to, std::int64_t first, const float* from, std::int64_t at,
                    std::int64_t count) const {
    for (std::int64_t t = 0; t < T; ++t)
      narrow(to + t * width + first * D, from + (t * heads_here + at) * D, count * D);
  }
};

}  // namespace

void attention_flash_forward(bf16* out, float* lse, const bf16* qkv, AttentionShape s, const bf16* sinks) {
  if (packs_attention<bf16>(s.T)) return packed_attention_forward(out, lse, qkv, s, sinks);
  const std::int64_t group = s.H / s.G, packed = (s.H + 2 * s.G) * s.D;
  parallel_tasks(s.B * s.H, [=](std::int64_t task) {
    const std::int64_t b = task / s.H, h = task % s.H, g = h / group;
    const bf16* const rows = qkv + b * s.T * packed;
    const HeadCopy in{s.T, s.D, packed, 3};
    float* const wide = scratch(0, s.T * 3 * s.D);
    in.widen_heads(wide, 0, rows, h, 1);
    in.widen_heads(wide, 1, rows, s.H + g, 1);
    in.widen_heads(wide, 2, rows, s.H + s.G + g, 1);
    float* const result = scratch(1, s.T * s.D);
    const float sink = sinks ? cuda::to_float(sinks[h]) : 0.0f;
    attention_flash_forward(result, lse ? lse + task * s.T : nullptr, wide,
                            {1, s.T, 1, 1, s.D, s.mask, sinks ? &sink : nullptr});
    HeadCopy{s.T, s.D, s.H * s.D, 1}.narrow_heads(out + b * s.T * s.H * s.D, h, result, 0, 1);
  });
}

void attention_flash_backward(bf16* dqkv, const bf16* dout, const bf16* qkv, const bf16* out,
                              const float* lse, AttentionShape s) {
  if (packs_attention<bf16>(s.T)) return packed_attention_backward(dqkv, dout, qkv, out, lse, s);
  const std::int64_t group = s.H / s.G, packed = (s.H + 2 * s.G) * s.D, heads = group + 2;
  parallel_tasks(s.B * s.G, [=](std::int64_t task) {
    const std::int64_t b = task / s.G, g = task % s.G;
    const HeadCopy in{s.T, s.D, packed, heads}, of_out{s.T, s.D, s.H * s.D, group};
    const std::int64_t first = b * s.T * packed, first_out = b * s.T * s.H * s.D;
    float* const wide = scratch(0, s.T * heads * s.D);
    in.widen_heads(wide, 0, qkv + first, g * group, group);
    in.widen_heads(wide, group, qkv + first, s.H + g, 1);
    in.widen_heads(wide, group + 1, qkv + first, s.H + s.G + g, 1);
    float *const wide_out = scratch(1, s.T * group * s.D), *const upward = scratch(2, s.T * group * s.D);
    of_out.widen_heads(wide_out, 0, out + first_out, g * group, group);
    of_out.widen_heads(upward, 0, dout + first_out, g * group, group);
    float* const gradient = scratch(3, s.T * heads * s.D);
    attention_flash_backward(gradient, upward, wide, wide_out, lse + (b * s.H + g * group) * s.T,
                             {1, s.T, group, 1, s.D, s.mask});
    in.narrow_heads(dqkv + first, g * group, gradient, 0, group);
    in.narrow_heads(dqkv + first, s.H + g, gradient, group, 1);
    in.narrow_heads(dqkv + first, s.H + s.G + g, gradient, group + 1, 1);
  });
}

void attention_sinks_backward(bf16* dsinks, const bf16* dout, const bf16* out, const float* lse,
                              const bf16* sinks, AttentionShape s) {
  const std::int64_t rows = s.T * s.D;
  parallel_tasks(s.H, [=](std::int64_t h) {
    const HeadCopy heads{s.T, s.D, s.H * s.D, 1};
    float *const upward = scratch(0, rows), *const result = scratch(1, rows);
    const float sink = cuda::to_float(sinks[h]);
    float sum = cuda::to_float(dsinks[h]);
    for (std::int64_t b = 0; b < s.B; ++b) {
      heads.widen_heads(upward, 0, dout + b * rows * s.H, h, 1);
      heads.widen_heads(result, 0, out + b * rows * s.H, h, 1);
      attention_sinks_backward(&sum, upward, result, lse + (b * s.H + h) * s.T,
                               {1, s.T, 1, 1, s.D, {}, &sink});
    }
    dsinks[h] = cuda::to_bf16(sum);
  });
}

void kv_append(const KvCache& cache, const bf16* qkv, const std::int32_t* positions, AttentionShape s) {
  kv_append(cache, widened(5, qkv, s.B * s.T * (s.H + 2 * s.G) * s.D), positions, s);
}

void attention_cached(bf16* out, const bf16* qkv, const KvCache& cache, const std::int32_t* positions,
                      AttentionShape s, const bf16* sinks) {
  if (sinks) s.sinks = widened(7, sinks, s.H);
  const std::int64_t elements = s.B * s.T * s.H * s.D;
  float* const wide = scratch(6, elements);
  attention_cached(wide, widened(5, qkv, s.B * s.T * (s.H + 2 * s.G) * s.D), cache, positions, s);
  narrow(out, wide, elements);
}

void cross_entropy_forward_backward(bf16* logits_to_dlogits, float* losses, const std::int32_t* targets,
                                    float scale, std::int64_t R, std::int64_t V, std::int64_t words,
                                    float cap) {
  parallel_ranges(R, V, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      float* const row = widened(0, logits_to_dlogits + r * V, V);
      cross_entropy_forward_backward(row, losses + r, targets + r, scale, 1, V, words, cap);
      narrow(logits_to_dlogits + r * V, row, V);
    }
  });
}

void squared_norm(double* sum_of_squares, const bf16* gradient, std::int64_t count) {
  constexpr std::int64_t kChunk = 1 << 14;
  const std::int64_t chunks = (count + kChunk - 1) / kChunk;
  static thread_local std::vector<double> storage;
  storage.assign(static_cast<std::size_t>(chunks), 0.0);
  double* const partials = storage.data();
  parallel_ranges(chunks, kChunk, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      const std::int64_t size = std::min(kChunk, count - chunk * kChunk);
      const float* const values = widened(0, gradient + chunk * kChunk, size);
      squared_norm(partials + chunk, {{values}}, {{size}});
    }
  });
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) *sum_of_squares += partials[chunk];
}

void adamw(const AdamWTensorBf16& tensor, const float* gradient_scale, const AdamWSettings& settings) {
  parallel_ranges(tensor.count, 7, [&](std::int64_t begin, std::int64_t end) {
    blocks_of(begin, end, 1, [&](std::int64_t i, std::int64_t count) {
      float* const parameter = tensor.master ? tensor.master + i : widened(0, tensor.parameter + i, count);
      const AdamWTensor wide{
          parameter,   widened(1, tensor.gradient + i, count), tensor.moment1 + i, tensor.moment2 + i, count,
          tensor.decay};
      adamw({{wide}}, gradient_scale, settings);
      narrow(tensor.parameter + i, parameter, count);
    });
  });
}

}  // namespace kernels::cpu
