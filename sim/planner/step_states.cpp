#include "sim/planner/step_states.h"

#include <utility>

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
  UnitCounts n;
  for (const Piece::Run& r : runs) {
    if (is_layer(r.unit) && n.layers.size() <= r.kind) n.layers.resize(r.kind + 1);
    (r.unit == Unit::embedding ? n.embedding : r.unit == Unit::head ? n.head : n.layers[r.kind]) += r.layers;
  }
  return n;
}

UnbucketedStates::UnbucketedStates(const Scenario& s, const Hardware& hardware,
                                   const Calibration* calibration, const BlockTimes& passes,
                                   int number_of_exchanges)
    : exchanges(number_of_exchanges),
      blocks(make_state_plan(s), hardware, calibration),
      memory(state_memory(blocks, passes)) {}

const StateTimes& UnbucketedStates::times() {
  if (!times_) times_ = state_times(blocks);
  return *times_;
}

StepStates::StepStates(UnbucketedStates& unbucketed, Buckets buckets, ExchangeNumbers& numbers)
    : unbucketed_(unbucketed),
      buckets_(std::move(buckets)),
      bucket_layers_(unbucketed.blocks.layers_in(buckets_.bytes)) {
  const StateExchange exchange{unbucketed.exchanges, bucket_layers_, buckets_.virtual_pipeline};
  exchange_ = numbers.try_emplace(exchange, static_cast<int>(numbers.size())).first->second;
}

const StateTimes& StepStates::times() const {
  if (buckets_.bytes == 0) return unbucketed_.times();
  if (times_) return *times_;
  times_ = std::make_unique<StateTimes>(unbucketed_.times());
  unbucketed_.blocks.set(buckets_);
  set_bucket_times(unbucketed_.blocks, *times_);
  return *times_;
}

StatePlaces state_places(const Scenario& s) {
  const Placement placement = placement_of(s.strategy.schedule);
  if (placement == Placement::two_directions) return StatePlaces::two_directions;
  const bool in_common = s.model.tie_word_embeddings || s.model.num_nextn_predict_layers > 0;
  return placement == Placement::v && in_common ? StatePlaces::ends_meet : StatePlaces::apart;
}

}  // namespace sim
