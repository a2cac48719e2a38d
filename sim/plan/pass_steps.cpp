#include "sim/plan/pass_steps.h"

#include <algorithm>
#include <utility>

namespace sim {
namespace {

// Visits runs of some layers of a piece, forwards or backwards: visit(run, first layer visited, layers).
template <class Visit>
void for_each_run(const Piece& piece, std::int32_t first, std::int32_t last, Visit visit) {
  std::int32_t begin = 0;
  for (const Piece::Run& r : piece.runs) {
    const std::int32_t from = std::max(first, begin), n = std::min(last, begin + r.layers) - from;
    if (n > 0) visit(r, from, n);
    begin += r.layers;
  }
}
template <class Visit>
void for_each_run_back(const Piece& piece, std::int32_t first, std::int32_t last, Visit visit) {
  std::int32_t end = piece.layers();
  for (auto r = piece.runs.rbegin(); r != piece.runs.rend(); end -= r->layers, ++r) {
    const std::int32_t to = std::min(last, end), n = to - std::max(first, end - r->layers);
    if (n > 0) visit(*r, to - 1, n);
  }
}

UnitStep layers(const Piece::Run& run, std::int32_t first, std::int32_t count, std::int32_t direction) {
  return {.unit = run.unit,
          .kind = static_cast<std::int32_t>(run.kind),
          .layer = first,
          .direction = direction,
          .count = count};
}

// Appends steps, and messages of their gradients.
class StepWriter {
 public:
  // `defers`: the embedding's gradients do not go with the pass.
  StepWriter(const BucketLayers& bucket, Reduced reduced, bool defers, std::vector<UnitStep>& into)
      : bucket_(bucket), reduced_(reduced), defers_(defers), steps_(into) {
    steps_.clear();
  }

  void add(UnitStep step) {
    if (step.works && is_layer(step.unit)) step.reduces = reduced_.layers;
    if (step.works && !is_layer(step.unit))
      step.reduces = reduced_.ends && !(defers_ && step.unit == Unit::embedding);
    if (!step.reduces) return append(step);
    if (waiting_ > 0 && step.unit != of_waiting_) {
      UnitStep first = step;
      first.count = 1;
      append(first);
      flush();
      of_waiting_ = step.unit;
      waiting_ = 1;
      if (bucket_[step.unit] == 1) flush();
      step.layer += step.direction;
      --step.count;
    }
    of_waiting_ = step.unit;
    step.bucket = bucket_[step.unit];
    step.waiting = waiting_;
    waiting_ = (waiting_ + step.count) % step.bucket;
    append(step);
  }

  void flush() {
    if (waiting_ > 0) steps_.push_back({.unit = of_waiting_, .flushed = std::exchange(waiting_, 0)});
  }

 private:
  void append(const UnitStep& step) {
    if (step.count > 0) steps_.push_back(step);
  }

  const BucketLayers& bucket_;
  Reduced reduced_;
  bool defers_;
  std::vector<UnitStep>& steps_;
  Unit of_waiting_{};
  std::int32_t waiting_ = 0;  // units of sort `of_waiting_` whose gradients have not gone
};

void add_backward(const Strategy& strategy, const Piece& piece, StepWriter& steps) {
  if (piece.last) steps.add({.unit = Unit::head, .reads = true, .works = true});
  const std::int32_t interval = recompute_interval(strategy, piece.layers());
  const bool again = strategy.recompute != Recompute::none;
  const auto back = [&](std::int32_t first, std::int32_t last, bool reads, bool recomputes) {
    for_each_run_back(piece, first, last, [&](const Piece::Run& r, std::int32_t from, std::int32_t n) {
      UnitStep s = layers(r, from, n, -1);
      s.works = true;
      s.reads = reads;
      s.recomputes = s.ends_group = recomputes;
      steps.add(s);
    });
  };
  if (interval == 1) {
    back(0, piece.layers(), true, again);
  } else {
    // A group's layers run forward again, then backward with the parameters that are there.
    for (std::int32_t end = piece.layers(); end > 0;) {
      const std::int32_t first = (end - 1) / interval * interval;
      const auto again_from = [&](std::int32_t from, std::int32_t to) {
        for_each_run(piece, from, to, [&](const Piece::Run& r, std::int32_t layer, std::int32_t n) {
          UnitStep s = layers(r, layer, n, 1);
          s.reads = s.recomputes = true;
          s.ends_group = to == end;
          steps.add(s);
        });
      };
      again_from(first, end - 1);
      again_from(end - 1, end);
      back(first, end, false, false);
      end = first;
    }
  }
  if (piece.first) steps.add({.unit = Unit::embedding, .reads = true, .works = true});
}

}  // namespace

void set_pass_steps(const Scenario& scenario, const Piece& piece, Pass pass, Reduced reduced,
                    const BucketLayers& bucket, std::vector<UnitStep>& into) {
  const Reduced own = gradients_of(pass);
  StepWriter steps(bucket, {reduced.layers && own.layers, reduced.ends && own.ends},
                   defers_embedding(scenario), into);
  switch (pass) {
    case Pass::forward:
      if (piece.first) steps.add({.unit = Unit::embedding, .reads = true, .works = true});
      for_each_run(piece, 0, piece.layers(), [&](const Piece::Run& r, std::int32_t first, std::int32_t n) {
        UnitStep s = layers(r, first, n, 1);
        s.reads = s.works = true;
        steps.add(s);
      });
      if (piece.last) steps.add({.unit = Unit::head, .reads = true, .works = true});
      break;
    case Pass::backward:
    case Pass::backward_input:
      add_backward(scenario.strategy, piece, steps);
      break;
    case Pass::backward_weight:
      for_each_run_back(piece, 0, piece.layers(),
                        [&](const Piece::Run& r, std::int32_t first, std::int32_t n) {
                          UnitStep s = layers(r, first, n, -1);
                          s.works = true;
                          steps.add(s);
                        });
      break;
  }
  steps.flush();
}

Reduced gradients_of(Pass pass) {
  return {.layers = pass == Pass::backward || pass == Pass::backward_weight,
          .ends = pass == Pass::backward || pass == Pass::backward_input};
}

bool defers_embedding(const Scenario& s) {
  return s.model.tie_word_embeddings && placement_of(s.strategy.schedule) == Placement::two_directions;
}

bool reduces_beside(const Scenario& s) {
  const DataParallelProfile& profile = s.implementation.data_parallel;
  const int zero = s.strategy.zero_stage;
  return zero >= 2 || (zero == 1 ? profile.overlaps_sharded_reduction : profile.overlaps_reduction);
}

bool gathers_ahead(const Scenario& s) {
  const int zero = s.strategy.zero_stage;
  return s.implementation.data_parallel.overlaps_gather && (zero == 1 || zero == 2);
}

std::array<OnceStep, 7> steps_before_update(const StepBlocks& b) {
  return {{{.block = b.zero_norm},
           {.block = b.sum_tied_embedding, .at_an_end = true},
           {.units = &b.unscale},
           {.block = b.read_overflow},
           {.units = &b.norm},
           {.block = b.sum_norm},
           {.block = b.clip}}};
}

}  // namespace sim
