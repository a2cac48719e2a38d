#include "sim/plan/layer_division.h"

#include <algorithm>
#include <utility>

namespace sim {
namespace {

double head_in_layers(const Model& m) {
  const ParameterCount count = count_parameters(m);
  return static_cast<double>(m.vocab_size) * static_cast<double>(m.hidden_size) /
         static_cast<double>(count.attention_per_layer + count.mlp_per_layer);
}

bool names_layers(const Strategy& t) {
  return t.first_stage_layers != 0 || t.last_stage_layers != 0;
}

// The number of layers of a piece, where the strategy gives it for the piece's stage; 0 for others.
std::int32_t named_layers_of(const Strategy& t, std::int32_t piece) {
  const Schedule places{
      .stages = t.pipeline_parallel, .chunks = t.virtual_pipeline, .placement = placement_of(t.schedule)};
  const std::int32_t stage = places.place_of(piece, 0).stage;
  const std::int32_t layers = stage == 0                         ? t.first_stage_layers
                              : stage == t.pipeline_parallel - 1 ? t.last_stage_layers
                                                                 : 0;
  return layers / t.virtual_pipeline;
}

}  // namespace

std::int32_t pieces_of(const Strategy& s) {
  return s.pipeline_parallel * s.virtual_pipeline;
}

LayerRange layers_of(const Scenario& s, std::int32_t piece) {
  const Strategy& t = s.strategy;
  const auto layers = static_cast<std::int32_t>(s.model.num_hidden_layers);
  const bool counts_head = s.implementation.pipeline.balances_head && t.last_stage_layers == 0;
  const double head = counts_head ? head_in_layers(s.model) : 0;
  if (!names_layers(t)) return layers_of(piece, pieces_of(t), layers, head);
  // Layers that the strategy names, and pieces that share the rest: in all, and before this piece.
  std::int32_t named = 0, named_before = 0, sharing = 0, sharing_before = 0;
  for (std::int32_t p = 0; p < pieces_of(t); ++p) {
    const std::int32_t own = named_layers_of(t, p);
    named += own;
    sharing += own == 0;
    if (p >= piece) continue;
    named_before += own;
    sharing_before += own == 0;
  }
  const auto begin_of_share = [&](std::int32_t p) {
    return p < sharing ? layers_of(p, sharing, layers - named, head).first : layers - named;
  };
  const std::int32_t first = named_before + begin_of_share(sharing_before);
  if (const std::int32_t own = named_layers_of(t, piece); own > 0) return {first, first + own};
  return {first, named_before + begin_of_share(sharing_before + 1)};
}

std::vector<Problem> division_problems(const Scenario& s) {
  std::vector<Problem> problems;
  const Strategy& t = s.strategy;
  const std::int64_t layers = s.model.num_hidden_layers, stages = t.pipeline_parallel,
                     chunks = t.virtual_pipeline, pieces = stages * chunks;
  if (stages > 1 && pieces > layers)
    add_problem(problems, chunks > 1 ? "strategy.virtual_pipeline" : "strategy.pipeline_parallel",
                "cuts the model into ", pieces, " pieces, but it has ", layers, " layers");
  if (!names_layers(t) || !problems.empty()) return problems;

  for (const auto& [field, own] : {std::pair{"strategy.first_stage_layers", t.first_stage_layers},
                                   std::pair{"strategy.last_stage_layers", t.last_stage_layers}}) {
    if (own == 0) continue;
    if (stages == 1)
      add_problem(problems, field, "is ", own,
                  ", but there is one stage: it needs pipeline_parallel above 1");
    else if (placement_of(t.schedule) == Placement::two_directions)
      add_problem(problems, field, "is ", own, ", but with ", t.schedule,
                  " the first stage holds the last one's layers too: it must be 0");
    else if (own % chunks != 0)
      add_problem(problems, field, "is ", own, ", which the ", chunks,
                  " chunks of a stage do not divide (virtual_pipeline)");
  }
  if (!problems.empty()) return problems;
  const std::int64_t rest = layers - t.first_stage_layers - t.last_stage_layers,
                     sharing = (stages - (t.first_stage_layers > 0) - (t.last_stage_layers > 0)) * chunks;
  if (rest < sharing || (sharing == 0 && rest > 0))
    add_problem(problems,
                t.first_stage_layers > 0 ? "strategy.first_stage_layers" : "strategy.last_stage_layers",
                "leaves ", std::max<std::int64_t>(rest, 0), " of ", layers,
                " layers for the other stages, which have ", sharing, " pieces of the model");
  return problems;
}

void divide_evenly(Scenario& s) {
  s.implementation.pipeline.balances_head = false;
  s.strategy.first_stage_layers = s.strategy.last_stage_layers = 0;
}

}  // namespace sim
