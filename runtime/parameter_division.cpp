#include "runtime/parameter_division.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "sim/plan/builder.h"
#include "sim/plan/lora.h"
#include "sim/plan/ranks.h"

namespace runtime {
namespace {

// Consecutive rows or columns that ranks divide by units: heads, groups, or single rows. If there are fewer
// units than ranks, neighbouring ranks hold the same one.
struct Units {
  std::int64_t count = 0, size = 1;
};

struct Division {
  std::int64_t other = 1;  // columns of what is divided by rows, and the reverse
  bool by_columns = false;
  std::vector<Units> units;
  bool padded = false;  // one run of units: the vocabulary
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
  if (const std::int64_t width = m.moe.shared_expert_intermediate_size; width > 0) {
    if (owner == "layer.shared_expert.gate_up")
      return rows(m.hidden_size, {static_cast<std::size_t>(m.up_size(width) / width), {width}});
    if (owner == "layer.shared_expert.down") return columns(m.hidden_size, {width});
  }
  if (owner == "layer.state_space.in") return rows(m.hidden_size, {inner, inner, groups, groups, heads});
  if (owner == "layer.state_space.conv") return rows(s.conv_kernel, {inner, groups, groups});
  if (parameter == "layer.state_space.heads") return rows(1, {heads, heads, heads});
  if (owner == "layer.state_space.norm") return rows(1, {inner});
  if (owner == "layer.state_space.out") return columns(m.hidden_size, inner);
  return std::nullopt;
}

// An adapter adds to a product beside it. Its B is divided as the rows of that product's weight, its A as the
// columns.
std::optional<Division> division_of_adapter(const sim::Scenario& scenario, std::string_view parameter) {
  const sim::Model& m = scenario.model;
  for (const sim::AdapterSite& site : sim::adapter_sites(m, scenario.workload)) {
    const std::string name = sim::adapter_name(m, site);
    if (!parameter.starts_with(name)) continue;
    const bool has_inputs = parameter.substr(name.size()).starts_with("_down");
    if (has_inputs != site.divides_inputs) return std::nullopt;
    Division division = division_of(m, name.substr(0, name.rfind('.')) + ".weight").value();
    division.other = scenario.workload.lora_rank;
    std::int64_t first = 0;
    for (const Units units : division.units) {
      if (first == site.first) {
        division.units = {units};
        return division;
      }
      first += units.count * units.size;
    }
    throw std::logic_error(name + " begins within what ranks divide");
  }
  return std::nullopt;
}

// Calls visit(place in the whole, place in the part, count) for each run of consecutive elements.
template <class Visit>
void each_run(const TensorPart& part, Visit visit) {
  const std::int64_t lines = part.by_columns ? part.rows : 1;
  const std::int64_t width = part.by_columns ? 1 : part.columns;
  for (std::int64_t line = 0; line < lines; ++line) {
    std::int64_t to = line * part.length;
    for (const TensorPart::Run& run : part.runs) {
      const std::int64_t from =
          (part.by_columns ? (part.first_row + line) * part.columns : 0) + run.begin * width;
      visit(from, to * width, run.count * width);
      to += run.count;
    }
  }
}

}  // namespace

namespace {

template <class Number>
void take_runs(const TensorPart& of, std::span<const Number> whole, std::span<Number> part, Number padding) {
  std::fill(part.begin(), part.end(), padding);
  each_run(of, [&](std::int64_t from, std::int64_t to, std::int64_t n) {
    std::copy_n(whole.begin() + from, n, part.begin() + to);
  });
}

template <class Number>
void put_runs(const TensorPart& of, std::span<const Number> part, std::span<Number> whole) {
  each_run(of, [&](std::int64_t from, std::int64_t to, std::int64_t n) {
    std::copy_n(part.begin() + to, n, whole.begin() + from);
  });
}

}  // namespace

void TensorPart::take(std::span<const float> whole, std::span<float> part, float padding) const {
  take_runs(*this, whole, part, padding);
}
void TensorPart::take(std::span<const std::uint8_t> whole, std::span<std::uint8_t> part) const {
  take_runs(*this, whole, part, std::uint8_t{0});
}
void TensorPart::put(std::span<const float> part, std::span<float> whole) const {
  put_runs(*this, part, whole);
}
void TensorPart::put(std::span<const double> part, std::span<double> whole) const {
  put_runs(*this, part, whole);
}

std::optional<TensorPart> TensorPart::of_groups(std::int64_t group) const {
  bool whole_groups = columns % group == 0;
  const auto divide = [&](std::int64_t& number) {
    whole_groups = whole_groups && number % group == 0;
    number /= group;
  };
  TensorPart part = *this;
  part.columns /= group;
  if (by_columns) {
    divide(part.length);
    for (Run& run : part.runs) {
      divide(run.begin);
      divide(run.count);
    }
  }
  return whole_groups ? std::optional(part) : std::nullopt;
}

namespace {

// A rank's place among the ranks that divide something.
struct PartPlace {
  std::int32_t ranks = 1, rank = 0;
};
struct ParameterPlace {
  PartPlace tensor;
  PartPlace experts, of_expert;  // among which experts are divided; that share each expert
  std::int64_t vocabulary = 0;   // rows of embedding and head that a rank holds, with padding
};

ParameterPlace parameter_place(const sim::Scenario& scenario, std::int32_t rank) {
  const sim::Strategy& s = scenario.strategy;
  ParameterPlace place;
  place.vocabulary = sim::held_vocabulary(scenario);
  place.tensor = {s.tensor_parallel, sim::place_of_rank(s, rank).tensor};
  const std::vector<std::int32_t> members =
      sim::members_of(s, sim::part_of(sim::expert_ranks(s), s.expert_parallel), rank);
  const auto self = std::find(members.begin(), members.end(), rank) - members.begin();
  place.experts = {s.expert_parallel, static_cast<std::int32_t>(self)};
  if (s.devices_of_expert() > 1) place.of_expert = place.tensor;
  return place;
}

// A rank's part of each of the experts (experts, ...) that it holds.
std::optional<TensorPart> part_of_experts(const sim::Model& m, std::string_view parameter,
                                          const ParameterPlace& place) {
  if (place.experts.ranks * place.of_expert.ranks == 1) return std::nullopt;
  const std::int64_t experts = m.moe.num_experts, held = experts / place.experts.ranks;
  const std::int64_t first = held * place.experts.rank, width = m.moe.moe_intermediate_size;
  const std::int64_t own = width / place.of_expert.ranks, at = own * place.of_expert.rank;
  const bool is_bias = parameter.ends_with(".bias");
  TensorPart part;
  if (parameter.starts_with("layer.experts.gate_up")) {
    const std::int64_t size = m.up_size(width);
    part.rows = experts * size;
    part.columns = is_bias ? 1 : m.hidden_size;
    for (std::int64_t e = first; e < first + held; ++e)
      for (std::int64_t row = e * size; row < (e + 1) * size; row += width)
        part.runs.push_back({row + at, own});
    part.length = held * size / place.of_expert.ranks;
  } else if (is_bias) {
    part.rows = experts * m.hidden_size;
    part.columns = 1;
    part.runs = {{first * m.hidden_size, held * m.hidden_size}};
    part.length = held * m.hidden_size;
  } else {
    part.by_columns = true;
    part.first_row = first * m.hidden_size;
    part.rows = held * m.hidden_size;
    part.columns = width;
    part.runs = {{at, own}};
    part.length = own;
  }
  return part;
}

}  // namespace

std::optional<TensorPart> part_of_parameter(const sim::Scenario& scenario, std::string_view parameter,
                                            std::int32_t of_rank) {
  const sim::Model& model = scenario.model;
  const ParameterPlace place = parameter_place(scenario, of_rank);
  if (parameter.starts_with("layer.experts.")) return part_of_experts(model, parameter, place);
  const auto [ranks, rank] = place.tensor;
  std::optional<Division> division = division_of(model, parameter);
  if (!division) division = division_of_adapter(scenario, parameter);
  if (!division || (ranks == 1 && !(division->padded && place.vocabulary > model.vocab_size)))
    return std::nullopt;
  TensorPart part;
  part.by_columns = division->by_columns;
  std::int64_t whole = 0;
  for (const Units& u : division->units) {
    const std::int64_t own = division->padded ? place.vocabulary : std::max<std::int64_t>(1, u.count / ranks);
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
