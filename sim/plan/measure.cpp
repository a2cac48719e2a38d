#include "sim/plan/measure.h"

#include <algorithm>
#include <cmath>

#include "sim/plan/operation.h"

namespace sim {
namespace {

double d(std::int64_t n) {
  return static_cast<double>(n);
}

// How many keys before it a query sees, where it does not see all of them.
std::int64_t reach_of(const Dims& n, std::int64_t all) {
  return n.window > 0 ? n.window : n.chunk > 0 ? n.chunk : all;
}

std::int64_t seen_keys(const Dims& n, const Variables& v) {
  if (n.chunk > 0) return v.kv_length - (v.kv_length - v.query_length) / n.chunk * n.chunk;
  return n.window > 0 ? std::min(v.kv_length, n.window + v.query_length - 1) : v.kv_length;
}

double newton_schulz_flops(double rows, double cols) {
  const double a = std::min(rows, cols), b = std::max(rows, cols);
  return kNewtonSchulzIterations * (4 * a * a * b + 2 * a * a * a);
}

}  // namespace

double value(Measure measure, const Operation& op, const Variables& v) {
  const Dims& n = op.dims;
  switch (measure) {
    case Measure::rows:
      return d(n.rows.value(v));
    case Measure::cols:
      return d(n.cols.value(v));
    case Measure::inner:
      return d(n.inner.value(v));
    case Measure::hidden:
      return d(n.hidden);
    case Measure::vocab:
      return d(n.vocab);
    case Measure::heads:
      return d(n.heads);
    case Measure::kv_heads:
      return d(n.kv_heads);
    case Measure::head_dim:
      return d(n.head_dim);
    case Measure::groups:
      return d(n.groups);
    case Measure::experts:
      return d(n.experts);
    case Measure::chosen:
      return d(n.chosen);
    case Measure::value_dim:
      return d(n.value_dim);
    case Measure::rope_dim:
      return d(n.rope_dim);
    case Measure::batch:
      return d(v.batch);
    case Measure::query_length:
      return d(v.query_length);
    case Measure::kv_length:
      return d(v.kv_length);
    case Measure::tokens:
      return d(v.batch * v.query_length);
    case Measure::packed_heads:
      return d(n.heads + 2 * n.kv_heads);
    case Measure::query_key_heads:
      return d(n.heads + n.kv_heads);
    case Measure::heads_and_key:
      return d(n.heads + 1);
    case Measure::key_value_dim:
      return d(n.head_dim + n.value_dim);
    case Measure::latent_dim:
      return d(n.head_dim - n.rope_dim);
    case Measure::softmax_and_choice:
      return d(4 + n.chosen);
    case Measure::pairs:
      return attended_pairs(op, v);
    case Measure::seen_keys:
      return d(seen_keys(n, v));
    case Measure::cached_tokens:
      return d(std::min(reach_of(n, v.kv_length), v.kv_length));
    case Measure::kept_tokens:
      return d(std::min(reach_of(n, v.query_length), v.query_length));
    case Measure::scale_groups:
      return d(n.scale_groups);
    case Measure::stored_rows:
      return d((op.place == Place::absorbs_keys ? n.inner : n.cols).value(v));
    case Measure::states:
      return d(n.states);
    case Measure::taps:
      return d(n.taps);
    case Measure::earlier_taps:
      return d(n.taps - 1);
    case Measure::taps_and_gate:
      return d(2 * n.taps + 5);
    case Measure::scan_columns:
      return d(n.heads * n.head_dim + 2 * n.groups * n.states);
    case Measure::projected_columns:
      return d(2 * n.heads * n.head_dim + 2 * n.groups * n.states + n.heads);
    case Measure::scan_work:
      return scan_flops(n, v, false);
    case Measure::scan_backward_work:
      return scan_flops(n, v, true);
    case Measure::hit_experts:
      return experts_hit(op, v);
    case Measure::useful_share:
      return op.scalar > 0 ? static_cast<double>(op.scalar) : 1;
    case Measure::newton_schulz:
      return newton_schulz_flops(d(n.rows.value(v)), d(n.cols.value(v)));
  }
  return 0;
}

double value(const Product& product, const Operation& op, const Variables& v) {
  double result = product.factor;
  for (const Measure m : product) result *= value(m, op, v);
  return result;
}

bool depends_on_length(const Product& product) {
  return std::ranges::any_of(product, [](Measure m) {
    return m == Measure::kv_length || m == Measure::pairs || m == Measure::seen_keys ||
           m == Measure::cached_tokens;
  });
}

double visible_pairs(const Variables& v, std::int64_t window, std::int64_t chunk) {
  if (chunk > 0) {
    // A sequence's first n queries: whole segments, and a part of the last one.
    const auto of_first = [chunk](std::int64_t n) {
      const double whole = d(n / chunk), rest = d(n % chunk);
      return whole * d(chunk) * d(chunk + 1) / 2 + rest * (rest + 1) / 2;
    };
    return d(v.batch) * (of_first(v.kv_length) - of_first(v.kv_length - v.query_length));
  }
  // The last query sees kv_length keys, and each query before it one fewer. Queries that would see more than
  // the window see the window.
  const double q = d(v.query_length);
  const std::int64_t over =
      window > 0 ? std::clamp(v.kv_length - window, std::int64_t{0}, v.query_length) : 0;
  const double excess = d(over) * d(v.kv_length - window) - d(over) * d(over - 1) / 2;
  return d(v.batch) * (q * d(v.kv_length) - q * (q - 1) / 2 - (over > 0 ? excess : 0));
}

Variables whole_attention(const Operation& op, Variables v) {
  if (takes(op.kind, Role::other_kv)) v.kv_length = v.query_length;
  if (has(op, Role::all_kv)) v.query_length = v.kv_length;
  return v;
}

double attended_pairs(const Operation& op, const Variables& v) {
  const double q = d(v.query_length);
  // A query sees half of another rank's keys: they lie before it as often as behind it.
  if (has(op, Role::other_kv)) return d(v.batch) * q * q / 2;
  const Variables whole = whole_attention(op, v);
  const double pairs = visible_pairs(whole, op.dims.window, op.dims.chunk);
  // The queries are spread so that each rank sees its share of all pairs.
  return has(op, Role::all_kv) ? pairs * q / d(whole.query_length) : pairs;
}

double scan_flops(const Dims& n, const Variables& v, bool backward) {
  const double chunk = d(std::min(n.scan_chunk, v.query_length));
  const double of_groups = 2 * chunk * d(n.groups * n.states), within = 2 * chunk * d(n.heads * n.head_dim);
  const double of_states = 4 * d(n.heads * n.head_dim * n.states);
  return backward ? 3 * of_groups + 2 * within + 2.5 * of_states : of_groups + within + of_states;
}

double experts_hit(const Operation& op, const Variables& v) {
  const Dims& n = op.dims;
  if (op.has_capacity) return d(n.groups);
  const double held = d(n.groups), chance = d(n.chosen) / d(n.experts);
  const double tokens = d(n.rows.value(v)) / (chance * held);  // of all ranks that send to these experts
  return held * -std::expm1(tokens * std::log1p(-std::min(chance, 1 - 1e-12)));
}

}  // namespace sim
