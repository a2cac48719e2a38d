#include "sim/plan/layer_division.h"

namespace sim {
namespace {

double head_in_layers(const Model& m) {
  const ParameterCount count = count_parameters(m);
  return static_cast<double>(m.vocab_size) * static_cast<double>(m.hidden_size) /
         static_cast<double>(count.attention_per_layer + count.mlp_per_layer);
}

}  // namespace

std::int32_t pieces_of(const Strategy& s) {
  return s.pipeline_parallel * s.virtual_pipeline;
}

LayerRange layers_of(const Scenario& s, std::int32_t piece) {
  const double head = s.implementation.pipeline.balances_head ? head_in_layers(s.model) : 0;
  return layers_of(piece, pieces_of(s.strategy), static_cast<std::int32_t>(s.model.num_hidden_layers), head);
}

std::vector<Problem> division_problems(const Scenario& s) {
  std::vector<Problem> problems;
  const Strategy& t = s.strategy;
  const std::int64_t pieces = std::int64_t{t.pipeline_parallel} * t.virtual_pipeline;
  if (t.pipeline_parallel > 1 && pieces > s.model.num_hidden_layers)
    add_problem(problems, t.virtual_pipeline > 1 ? "strategy.virtual_pipeline" : "strategy.pipeline_parallel",
                "cuts the model into ", pieces, " pieces, but it has ", s.model.num_hidden_layers, " layers");
  return problems;
}

void divide_evenly(Scenario& s) {
  s.implementation.pipeline.balances_head = false;
}

}  // namespace sim
