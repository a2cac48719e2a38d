// What passes over a piece of the model take, with what is exchanged beside them, and what a stage does once
// a step.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sim/plan/pass_steps.h"
#include "sim/planner/pass_time.h"
#include "sim/planner/unit_prices.h"

namespace sim {

// What software does around passes.
struct StepSoftware {
  HostWork pass;              // before a pass, and once before and after them all
  Seconds before_first_pass;  // of the host, where that begins the step
  Interference interference;
  bool hosts = false;  // decide when anything begins
};

// Passes of a schedule's slots, and those that do more: the first of a chunk or of its stage, the first that
// has gradients, the last, which ends them. `rest`: what the host does before a pass it has done before the
// part of inputs.
enum class PassKind : std::uint8_t {
  forward,
  backward,
  input,
  weight,
  first_forward,
  first_of_stage,
  first_backward,
  first_input,
  last_backward,
  last_input,
  last_weight,
  rest_weight,
  last_rest_weight,
};
inline constexpr std::size_t kPassKinds = 13;

// Times of passes over pieces, with what each exchanges by the strategy's ZeRO stage.
class PassTimer {
 public:
  // Refers to all that it is given. `single`: a chunk has one micro-batch, whose pass is both first and last.
  PassTimer(const Scenario& scenario, const ComputeTimes& compute, const StateTimes& states,
            const StepSoftware& software, bool single);

  // The first kind that takes the same.
  PassKind same_as(PassKind kind) const;
  // What of states such a pass depends on: what is exchanged, the sizes of buckets, and units gathered ahead.
  struct Needs {
    bool exchanges = false, buckets = false, ahead = false;
  };
  Needs needs(PassKind kind) const;
  // What the steps of such a pass depend on beside its piece, and its time with them.
  struct Order {
    Pass pass{};
    bool reduces = false;
    BucketLayers bucket = {};
    auto operator<=>(const Order&) const = default;
  };
  Order order(PassKind kind) const;
  PassTime time(const std::vector<UnitStep>& steps, PassKind kind) const;

 private:
  struct Variant {
    Pass pass{};
    bool begins_gradients = false, ends_gradients = false, begins_step = false, reads_ahead = false;
    bool rest = false;
  };
  Variant variant(PassKind kind) const;
  bool reduces(const Variant& v) const;
  bool gathers(const Variant& v) const;
  TimedStep priced(const UnitStep& step, const Variant& variant, const UnitTimes* gather) const;

  const Scenario& scenario_;
  const ComputeTimes& compute_;
  const StateTimes& states_;
  const StepSoftware& software_;
  bool single_, last_differs_ = false;
};

// What a stage does once a step, before its first pass and after its last.
struct StageEnds {
  Seconds begin, host_begin;
  FromEach finish;  // the end of the step, from where streams are after the last pass
};
// `units`: all of the stage's, in the order in which they are updated; `pieces`: as its chunks have them.
StageEnds stage_ends(const Scenario& scenario, std::span<const Piece::Run> units,
                     const std::vector<const Piece*>& pieces, bool at_an_end, const StateTimes& states,
                     const StepSoftware& software);

}  // namespace sim
