#include "runtime/parameter_division.h"

#include <algorithm>

namespace runtime {
namespace {

// Consecutive rows or columns that ranks divide by units: heads, groups, single ones. Where there are fewer
// units than ranks, neighbours hold the same one.
struct Units {
  std::int64_t count = 0, size = 1;
};

struct Division {
  std::int64_t other = 1;  // columns of what is divided by rows, and the reverse
  bool by_columns = false;
  std::vector<Units> units;
  bool padded = false;  // one run of units, to a multiple of the ranks
};

std::optional<Division> division_of(const sim::Model& m, std::string_view parameter) {
  const bool is_bias = parameter.ends_with(".bias");
  const std::string_view owner = parameter.substr(0, parameter.rfind('.'));
  const sim::StateSpace& s = m.state_space;
  const auto rows = [&](std::int64_t inputs, std::vector<Units> units) {
    return Division{.other = is_bias ? 1 : inputs, .units = std::move(units)};
  };
  const auto columns = [&](std::int64_t outputs, Units units) -> std::optional<Division> {
    if (is_bias) return std::nullopt;
    return Division{.other = outputs, .by_columns = true, .units = {units}};
  };
  const Units queries{m.num_attention_heads, m.head_dim}, keys{m.num_key_value_heads, m.head_dim};
  const Units inner{s.mamba_num_heads, s.mamba_head_dim}, groups{s.n_groups, s.ssm_state_size};
  const Units heads{s.mamba_num_heads};
  if (owner == "embedding" || owner == "head")
    return Division{.other = m.hidden_size, .units = {{m.vocab_size}}, .padded = true};
  if (owner == "layer.attention.qkv") return rows(m.hidden_size, {queries, keys, keys});
  if (owner == "layer.attention.output")
    return columns(m.hidden_size, {m.num_attention_heads, m.value_size() / m.num_attention_heads});
  if (owner == "layer.attention.qk_norm" && m.qk_norm == sim::QkNorm::all_heads)
    return rows(1, {queries, keys});
  if (parameter == "layer.attention.sinks") return rows(1, {{m.num_attention_heads}});
  if (owner == "layer.mlp.gate_up")
    return rows(m.hidden_size, {{m.intermediate_size}, {m.intermediate_size}});
  if (owner == "layer.mlp.up") return rows(m.hidden_size, {{m.intermediate_size}});
  if (owner == "layer.mlp.down") return columns(m.hidden_size, {m.intermediate_size});
  if (owner == "layer.state_space.in") return rows(m.hidden_size, {inner, inner, groups, groups, heads});
  if (owner == "layer.state_space.conv") return rows(s.conv_kernel, {inner, groups, groups});
  if (parameter == "layer.state_space.heads") return rows(1, {heads, heads, heads});
  if (owner == "layer.state_space.norm") return rows(1, {inner});
  if (owner == "layer.state_space.out") return columns(m.hidden_size, inner);
  return std::nullopt;
}

// visit(in the whole, in the part, elements) for each run of consecutive elements.
template <class Visit>
void each_run(const TensorPart& part, Visit visit) {
  const std::int64_t lines = part.by_columns ? part.rows : 1;
  const std::int64_t width = part.by_columns ? 1 : part.columns;
  for (std::int64_t line = 0; line < lines; ++line) {
    std::int64_t to = line * part.length;
    for (const TensorPart::Run& run : part.runs) {
      const std::int64_t from = (part.by_columns ? line * part.columns : 0) + run.begin * width;
      visit(from, to * width, run.count * width);
      to += run.count;
    }
  }
}

}  // namespace

void TensorPart::take(std::span<const float> whole, std::span<float> part) const {
  std::fill(part.begin(), part.end(), 0.0f);
  each_run(*this, [&](std::int64_t from, std::int64_t to, std::int64_t n) {
    std::copy_n(whole.begin() + from, n, part.begin() + to);
  });
}

void TensorPart::put(std::span<const float> part, std::span<float> whole) const {
  each_run(*this, [&](std::int64_t from, std::int64_t to, std::int64_t n) {
    std::copy_n(part.begin() + to, n, whole.begin() + from);
  });
}

std::optional<TensorPart> part_of_parameter(const sim::Model& model, std::string_view parameter,
                                            std::int32_t ranks, std::int32_t rank) {
  if (ranks == 1) return std::nullopt;
  const std::optional<Division> division = division_of(model, parameter);
  if (!division) return std::nullopt;
  TensorPart part;
  part.by_columns = division->by_columns;
  std::int64_t whole = 0;
  for (const Units& u : division->units) {
    const std::int64_t own =
        division->padded ? (u.count + ranks - 1) / ranks : std::max<std::int64_t>(1, u.count / ranks);
    const std::int64_t first = std::min(u.count, division->padded ? rank * own : rank * u.count / ranks);
    part.runs.push_back({whole + first * u.size, std::min(own, u.count - first) * u.size});
    part.length += own * u.size;
    whole += u.count * u.size;
  }
  part.rows = part.by_columns ? division->other : whole;
  part.columns = part.by_columns ? whole : division->other;
  return part;
}

}  // namespace runtime
