#include "sim/cost/work.h"

#include <algorithm>
#include <bitset>
#include <cmath>
#include <cstddef>

namespace sim {
namespace {

double d(std::int64_t n) {
  return static_cast<double>(n);
}

// ---- FLOPs. A multiply-add is two; a division, root or transcendental is one.

double elements(const Operation& op, const Variables& v) {
  return d(op.dims.rows.value(v)) * d(op.dims.cols.value(v));
}

double operand_elements(const Plan& plan, const Operation& op, const Variables& v, std::size_t first,
                        std::size_t stride) {
  double sum = 0;
  for (std::size_t i = first; i < op.operands.size(); i += stride)
    if (op.operands[i].buffer != kNoBuffer)
      sum += d(plan.buffers[static_cast<std::size_t>(op.operands[i].buffer)].elements(v));
  return sum;
}

struct FlopCount {
  double executed = 0, model = 0;
};

// Only products of matrices count in MFU.
FlopCount product(double flops) {
  return {flops, flops};
}
FlopCount elementwise(double flops) {
  return {flops, 0};
}

// Five iterations of X = aX + (bA + cA^2) X with A = X X^T, along the shorter side (Jordan et al. 2024,
// github.com/KellerJordan/Muon).
constexpr int kNewtonSchulzIterations = 5;
double newton_schulz_flops(double rows, double cols) {
  const double a = std::min(rows, cols), b = std::max(rows, cols);
  return kNewtonSchulzIterations * (4 * a * a * b + 2 * a * a * a);
}

// Of a rank's own keys (operand `kv` absent) its queries see those before them, of another's half.
double partial_pairs(const Operation& op, const Variables& v, std::size_t kv) {
  const double q = d(v.query_length);
  const bool own = op.operands[kv].buffer == kNoBuffer;
  return d(v.batch) * q * (own ? q + 1 : q) / 2;
}

FlopCount flops_of(const Plan& plan, const Operation& op, const Variables& v) {
  const Dims& n = op.dims;
  const double rows = d(n.rows.value(v));
  const double head_size = d(n.heads) * d(n.head_dim);
  // Scores and values, 2 FLOPs each for a pair of tokens and an element of a head.
  // Context parallelism: a rank's queries are spread so that it sees its share of all pairs.
  const std::size_t kv = op.kind == OpKind::attention_flash ? 3 : 5;
  const bool of_all_ranks =
      (op.kind == OpKind::attention_flash || op.kind == OpKind::attention_flash_backward) &&
      op.operands.size() > kv && op.operands[kv].buffer != kNoBuffer;
  // Of all ranks' queries a rank has its share.
  const Variables whole{.batch = v.batch, .query_length = v.kv_length, .kv_length = v.kv_length};
  const double pairs = of_all_ranks
                           ? visible_pairs(whole, n.window, n.chunk) * d(v.query_length) / d(v.kv_length)
                           : visible_pairs(v, n.window, n.chunk);
  const double visible = 4 * head_size * pairs;
  const double visible_latent = 2 * d(n.heads) * d(n.head_dim + n.value_dim) * pairs;
  const double square = 4 * head_size * d(v.batch) * d(v.query_length) * d(v.kv_length);
  switch (op.kind) {
    case OpKind::embedding:
    case OpKind::embedding_backward:
      return elementwise(rows * d(n.hidden));
    case OpKind::layernorm:  // mean 1, variance 3, normalise 2, gain and bias 2
      return elementwise(8 * rows * d(n.hidden));
    case OpKind::layernorm_backward:  // two means 5, dinp 5, dweight and dbias 3, the normalised input again
                                      // 2
      return elementwise(15 * rows * d(n.hidden));
    case OpKind::rmsnorm:  // mean of squares 2, normalise 1, gain 1
      return elementwise(4 * rows * d(n.hidden));
    case OpKind::rmsnorm_backward:  // one mean 3, dinp 4, dweight 2, the normalised input again 1
      return elementwise(10 * rows * d(n.hidden));
    case OpKind::matmul:
    case OpKind::matmul_backward_input:
    case OpKind::matmul_backward_weight:
      return product(2 * rows * d(n.cols.value(v)) * d(n.inner.value(v)));
    case OpKind::grouped_matmul:
    case OpKind::grouped_matmul_backward_input:
    case OpKind::grouped_matmul_backward_weight: {
      const double executed = 2 * rows * d(n.cols.value(v)) * d(n.inner.value(v));
      return {executed, executed * (op.scalar > 0 ? static_cast<double>(op.scalar) : 1)};
    }
    case OpKind::route:  // softmax 4, and a comparison for each of the chosen
      return elementwise(rows * d(n.experts) * (4 + d(n.chosen)));
    case OpKind::route_backward:
      return elementwise(4 * rows * d(n.experts));
    case OpKind::permute:
      return {};
    case OpKind::unpermute:
      return elementwise(d(n.inner.value(v)) * d(n.cols.value(v)));
    case OpKind::qk_norm:  // as rmsnorm, of queries and keys
      return elementwise(4 * d(v.batch) * d(v.query_length) * d(n.heads + n.kv_heads) * d(n.head_dim));
    case OpKind::qk_norm_backward:
      return elementwise(10 * d(v.batch) * d(v.query_length) * d(n.heads + n.kv_heads) * d(n.head_dim));
    case OpKind::rope:
    case OpKind::rope_backward:  // 6 for each pair of elements of queries and keys
      return elementwise(3 * d(v.batch) * d(v.query_length) * d(n.heads + n.kv_heads) * d(n.head_dim));
    case OpKind::rope_latent:  // 6 for each pair of elements of queries and the key
    case OpKind::rope_latent_backward:
      return elementwise(3 * d(v.batch) * d(v.query_length) * d(n.heads + 1) * d(n.rope_dim));
    case OpKind::attention_latent:
    case OpKind::attention_latent_cached:  // scores by head_dim, values by value_dim
      return product(visible_latent);
    case OpKind::attention_latent_backward:
      return {2.5 * visible_latent, 2 * visible_latent};
    case OpKind::attention_flash:
    case OpKind::attention_cached:
      return product(visible);
    case OpKind::attention_flash_backward:  // five products, where forward has two: the scores once more
      return {2.5 * visible, 2 * visible};
    case OpKind::attention_standard:  // computes what the mask then hides
      return {square, visible};
    case OpKind::attention_standard_backward:
      return {2 * square, 2 * visible};
    case OpKind::gelu:  // tanh form: the cubic 5, tanh 1, the rest 3
      return elementwise(9 * elements(op, v));
    case OpKind::gelu_backward:
      return elementwise(18 * elements(op, v));
    case OpKind::relu:
    case OpKind::relu_backward:
      return elementwise(elements(op, v));
    case OpKind::squared_relu:
      return elementwise(2 * elements(op, v));
    case OpKind::squared_relu_backward:
      return elementwise(3 * elements(op, v));
    case OpKind::geglu:
      return elementwise(10 * elements(op, v));
    case OpKind::geglu_backward:
      return elementwise(20 * elements(op, v));
    case OpKind::swiglu:  // sigmoid 4, two products
      return elementwise(6 * elements(op, v));
    case OpKind::swiglu_backward:
      return elementwise(12 * elements(op, v));
    case OpKind::add:
      return elementwise(elements(op, v));
    case OpKind::dropout:
    case OpKind::dropout_backward:  // mask and scale
      return elementwise(2 * elements(op, v));
    case OpKind::cross_entropy_statistics:  // maximum 1, exponential 2, sum 1
      return elementwise(4 * rows * d(n.vocab));
    case OpKind::cross_entropy:  // maximum 1, exponential 2, sum 1, gradient 2
      return elementwise(6 * rows * d(n.vocab));
    case OpKind::sample:  // scale, maximum or exponential and sum
      return elementwise(3 * rows * d(n.vocab));
    case OpKind::squared_norm:
      return elementwise(2 * operand_elements(plan, op, v, 1, 1));
    case OpKind::clip_scale:
      return elementwise(3);
    case OpKind::quantise:  // absolute value and maximum; scale and rounding
      return elementwise(4 * operand_elements(plan, op, v, 1, 1));
    case OpKind::unscale:  // a product, a comparison
      return elementwise(2 * operand_elements(plan, op, v, 1, 1));
    case OpKind::adamw:  // clip 1, moments 3 + 4, corrections 2, root and division 3, decay and step 4
      return elementwise(17 * operand_elements(plan, op, v, 1, 5));
    case OpKind::adamw_8bit:  // besides, of each moment: two products, absolute value and maximum, rounding
      return elementwise(27 * operand_elements(plan, op, v, 1, 7));
    case OpKind::adafactor:  // clip 1, square 1, two sums 2, root of their product 3, size of the step 3,
                             // step 4
      return elementwise(14 * operand_elements(plan, op, v, 1, 5));
    case OpKind::sgd:  // clip 1, momentum 2, decay and step 4
      return elementwise(7 * operand_elements(plan, op, v, 1, 4));
    case OpKind::muon_momentum:  // clip 1, momentum 2, Nesterov's step 2
      return elementwise(5 * operand_elements(plan, op, v, 1, 3));
    case OpKind::orthogonalise:
      return {d(n.groups) * newton_schulz_flops(rows, d(n.cols.value(v))), 0};
    case OpKind::apply_update:  // decay and step
      return elementwise(4 * operand_elements(plan, op, v, 0, 3));
    case OpKind::attention_partial:
      return product(4 * head_size * partial_pairs(op, v, 3));
    case OpKind::attention_partial_backward: {
      const double visible_part = 4 * head_size * partial_pairs(op, v, 6);
      return {2.5 * visible_part, 2 * visible_part};
    }
    case OpKind::attention_merge:  // two weights a row; scale, scale and add
      return elementwise(3 * head_size * d(v.batch) * d(v.query_length));
    case OpKind::kv_append:
    case OpKind::latent_append:
    case OpKind::gather_last:
    case OpKind::zero:
    case OpKind::host_read:
    case OpKind::copy_to_host:
    case OpKind::copy_from_host:
    case OpKind::all_to_all:
    case OpKind::all_gather:
    case OpKind::exchange:
    case OpKind::send:
    case OpKind::receive:
      return {};
    case OpKind::all_reduce:
      return elementwise(operand_elements(plan, op, v, 0, 1));
    case OpKind::reduce_scatter:
      return elementwise(operand_elements(plan, op, v, 1, 2));
  }
  return {};
}

// ---- Memory.

Bytes bytes_of(const Plan& plan, const Operand& o, double count) {
  return {static_cast<std::int64_t>(count) * bits(plan.buffers[static_cast<std::size_t>(o.buffer)].dtype) /
          8};
}

// Keys that the queries of an action see together.
std::int64_t seen_keys(const Dims& n, const Variables& v) {
  if (n.chunk > 0) return v.kv_length - (v.kv_length - v.query_length) / n.chunk * n.chunk;
  return n.window > 0 ? std::min(v.kv_length, n.window + v.query_length - 1) : v.kv_length;
}

// Elements of operand i that are touched, where that is not all of the buffer; negative where it is.
double touched(const Operation& op, const Variables& v, std::size_t i) {
  const Dims& n = op.dims;
  const double rows = d(n.rows.value(v));
  constexpr double kAll = -1;
  switch (op.kind) {
    case OpKind::embedding:  // a row of each table for each token, or for each position
      if (i == 2) return rows * d(n.hidden);
      if (i == 3) return d(v.query_length) * d(n.hidden);
      return kAll;
    case OpKind::embedding_backward:
      if (i == 0) return rows * d(n.hidden);
      if (i == 1) return d(v.query_length) * d(n.hidden);
      return kAll;
    case OpKind::rope:
    case OpKind::rope_backward:  // values stay; a row of the table for each position
      if (i == 0) return d(v.batch) * d(v.query_length) * d(n.heads + n.kv_heads) * d(n.head_dim);
      if (i == 1) return d(v.query_length) * d(n.head_dim);
      return kAll;
    case OpKind::rope_latent:
    case OpKind::rope_latent_backward: {  // what is turned, and the keys' copies of it
      const double turned = d(v.batch) * d(v.query_length) * d(n.heads) * d(n.rope_dim);
      if (i == 0 || i == 2) return turned;
      if (i == 3) return d(v.query_length) * d(n.rope_dim);
      return kAll;
    }
    case OpKind::latent_append:
      if (i == 0) return d(v.batch) * d(v.query_length) * d(n.head_dim);
      return kAll;
    case OpKind::attention_latent_cached:
      if (i == 2) return d(v.batch) * d(v.kv_length) * d(n.head_dim);
      return kAll;
    case OpKind::qk_norm:
    case OpKind::qk_norm_backward:  // values stay
      if (i != 1 && i != 3 && i != 4)
        return d(v.batch) * d(v.query_length) * d(n.heads + n.kv_heads) * d(n.head_dim);
      return kAll;
    case OpKind::grouped_matmul:
    case OpKind::grouped_matmul_backward_input:  // weights of experts that nothing was sent to stay unread
      if (i == 2) return experts_hit(n, v) * d(n.cols.value(v)) * d(n.inner.value(v));
      return kAll;
    case OpKind::kv_append:
      if (i <= 2) {
        const std::int64_t reach = n.window > 0 ? n.window : n.chunk > 0 ? n.chunk : v.query_length;
        const std::int64_t kept = std::min(reach, v.query_length);
        return (i == 2 ? 2 : 1) * d(v.batch) * d(kept) * d(n.kv_heads) * d(n.head_dim);
      }
      return kAll;
    case OpKind::attention_cached:  // queries; the keys and values that are there
      if (i == 1) return d(v.batch) * d(v.query_length) * d(n.heads) * d(n.head_dim);
      if (i == 2 || i == 3) return d(v.batch) * d(seen_keys(n, v)) * d(n.kv_heads) * d(n.head_dim);
      return kAll;
    case OpKind::gather_last:
      return d(v.batch) * d(n.cols.value(v));
    case OpKind::attention_partial:  // of another's keys and values only the queries of one's own
      if (i == 2 && op.operands[3].buffer != kNoBuffer)
        return d(v.batch) * d(v.query_length) * d(n.heads) * d(n.head_dim);
      return kAll;
    case OpKind::attention_partial_backward:
      if ((i == 0 || i == 3) && op.operands[6].buffer != kNoBuffer)
        return d(v.batch) * d(v.query_length) * d(n.heads) * d(n.head_dim);
      return kAll;
    default:
      return kAll;
  }
}

struct Passes {
  int reads = 0, writes = 0;
};

// Reads and writes of operand i. Standard attention writes scores, softmax rewrites them, products read them.
Passes passes(const Operation& op, std::size_t i) {
  const Operand& o = op.operands[i];
  const auto dropout = [&] {
    const std::size_t mask = op.operands.size() > 6 ? 6 : 4;
    return op.operands.size() > mask && op.operands[mask].buffer != kNoBuffer;
  };
  switch (op.kind) {
    case OpKind::attention_standard:
      if (i == 1) return {2, 2};               // softmax in place; then product or dropout
      if (i == 4 && dropout()) return {1, 1};  // what dropout leaves, then product
      break;
    case OpKind::attention_standard_backward:
      if (i == 1)
        return dropout() ? Passes{4, 3} : Passes{3, 2};  // product, [dropout], softmax, two products
      if (i == 4)
        return dropout() ? Passes{1, 0} : Passes{2, 0};  // softmax, and without dropout the values' product
      break;
    case OpKind::kv_append:
      if (i < 2) return {0, 1};
      break;
    case OpKind::latent_append:
      if (i == 0) return {0, 1};
      break;
    case OpKind::rope_latent:
      if (i == 2) return {0, 1};
      break;
    case OpKind::quantise:
      if (i == 1) return {2, 0};  // the scale must be known before it is used
      break;
    case OpKind::adafactor:  // a gradient's sums over rows and columns come before the step that they scale
      if (i % operands_in_group(op.kind) == 2) return {2, 0};
      break;
    case OpKind::orthogonalise:  // X three times an iteration, of which one is written
      return {2 * kNewtonSchulzIterations, kNewtonSchulzIterations};
    default:
      break;
  }
  return {o.access != Access::write ? 1 : 0, o.access != Access::read ? 1 : 0};
}

void add_memory(const Plan& plan, const Operation& op, const Variables& v, Work& work) {
  std::bitset<1024> met;  // by buffer and layer: what is not marked is a new one
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const Operand& o = op.operands[i];
    if (o.buffer == kNoBuffer) continue;
    // A result in the place of an operand is read and written once.
    const auto same = [&](const Operand& other) {
      return other.buffer == o.buffer && other.layer_offset == o.layer_offset;
    };
    const auto mark = static_cast<std::size_t>(o.buffer + 127 * o.layer_offset) % met.size();
    if (met[mark] &&
        std::any_of(op.operands.begin(), op.operands.begin() + static_cast<std::ptrdiff_t>(i), same))
      continue;
    met[mark] = true;
    const double part = touched(op, v, i);
    const Bytes bytes =
        part < 0 ? plan.buffers[static_cast<std::size_t>(o.buffer)].bytes(v) : bytes_of(plan, o, part);
    const Passes n = passes(op, i);
    if (plan.buffers[static_cast<std::size_t>(o.buffer)].on_host) {
      work.host += bytes * (n.reads + n.writes);
      if (op.kind == OpKind::copy_to_host || op.kind == OpKind::copy_from_host) work.copied += bytes;
      continue;
    }
    work.read += bytes * n.reads;
    work.written += bytes * n.writes;
  }
}

// ---- Network. What one rank sends by the ring algorithms (nccl-tests, PERFORMANCE.md).

Bytes network_of(const Plan& plan, const Operation& op, const Variables& v) {
  if (!is_collective(op.kind) || op.group < 0) return {};
  const auto bytes = [&](std::size_t first, std::size_t stride) {
    std::int64_t sum = 0;
    for (std::size_t i = first; i < op.operands.size(); i += stride)
      sum += plan.buffers[static_cast<std::size_t>(op.operands[i].buffer)].bytes(v).value;
    return sum;
  };
  const std::int64_t n = plan.groups[static_cast<std::size_t>(op.group)].size;
  switch (op.kind) {
    case OpKind::all_reduce:
      return {2 * (n - 1) * bytes(0, 1) / n};
    case OpKind::reduce_scatter:
      return {(n - 1) * bytes(1, 2) / n};
    case OpKind::all_gather:
      return {(n - 1) * bytes(0, 2) / n};
    case OpKind::all_to_all:  // the busier of the two directions
      return {(n - 1) * std::max(bytes(0, 2), bytes(1, 2)) / n};
    case OpKind::exchange:
      return {bytes(0, 2)};
    case OpKind::send:
      return {bytes(0, 1)};
    default:
      return {};
  }
}

}  // namespace

double visible_pairs(const Variables& v, std::int64_t window, std::int64_t chunk) {
  if (chunk > 0) {
    // Of a sequence's first n queries: whole stretches, and the part of the last one.
    const auto of_first = [chunk](std::int64_t n) {
      const double whole = d(n / chunk), rest = d(n % chunk);
      return whole * d(chunk) * d(chunk + 1) / 2 + rest * (rest + 1) / 2;
    };
    return d(v.batch) * (of_first(v.kv_length) - of_first(v.kv_length - v.query_length));
  }
  // The last query sees kv_length keys, each one before it one less; those that would see more than the
  // window see the window.
  const double q = d(v.query_length);
  const std::int64_t over =
      window > 0 ? std::clamp(v.kv_length - window, std::int64_t{0}, v.query_length) : 0;
  const double excess = d(over) * d(v.kv_length - window) - d(over) * d(over - 1) / 2;
  return d(v.batch) * (q * d(v.kv_length) - q * (q - 1) / 2 - (over > 0 ? excess : 0));
}

double experts_hit(const Dims& n, const Variables& v) {
  const double held = d(n.groups), chance = d(n.chosen) / d(n.experts);
  const double tokens = d(n.rows.value(v)) / (chance * held);  // of all ranks that send to these experts
  return held * -std::expm1(tokens * std::log1p(-std::min(chance, 1 - 1e-12)));
}

Work work_of(const Plan& plan, const Operation& op, const Variables& of_action) {
  const Variables v = bound_to(op, of_action);
  Work work;
  const FlopCount flops = flops_of(plan, op, v);
  work.flops = {flops.executed};
  work.model_flops = {flops.model};
  add_memory(plan, op, v, work);
  work.network = network_of(plan, op, v);
  return work;
}

}  // namespace sim
