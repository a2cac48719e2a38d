#include "sim/planner/step_states.h"

#include "sim/plan/schedule.h"

namespace sim {

void StageUnits::add(const Piece& piece) {
  const auto append = [this](const Piece::Run& r) {
    if (!runs.empty() && runs.back().unit == r.unit && runs.back().kind == r.kind)
      runs.back().layers += r.layers;
    else
      runs.push_back(r);
  };
  if (piece.first) append({.unit = Unit::embedding, .layers = 1});
  for (const Piece::Run& r : piece.runs) append(r);
  if (piece.last) append({.unit = Unit::head, .layers = 1});
}

UnitCounts StageUnits::counts() const {
  UnitCounts n(place_of_layers(0));
  for (const Piece::Run& r : runs) {
    const std::size_t place = place_of(r.unit, r.kind);
    if (n.size() <= place) n.resize(place + 1);
    n[place] += r.layers;
  }
  return n;
}

UnbucketedStates::UnbucketedStates(const Scenario& s, const Hardware& hardware,
                                   const Calibration* calibration, const BlockTimes& passes,
                                   int number_of_exchange)
    : blocks(make_state_plan(s), hardware, calibration),
      memory(state_memory(blocks, passes)),
      exchange(number_of_exchange) {}

StatePlaces state_places(const Scenario& s) {
  const Placement placement = placement_of(s.strategy.schedule);
  if (placement == Placement::two_directions) return StatePlaces::two_directions;
  const bool in_common = s.model.tie_word_embeddings || s.model.num_nextn_predict_layers > 0;
  return placement == Placement::v && in_common ? StatePlaces::ends_meet : StatePlaces::apart;
}

}  // namespace sim
