// What passes over a piece of the model take, with what is exchanged beside them, and what a stage does once
// a step.
#pragma once
#include <array>
#include <memory_resource>
#include <span>
#include <vector>

#include "sim/plan/pass_steps.h"
#include "sim/planner/pass_time.h"
#include "sim/planner/unit_prices.h"

namespace sim {

struct StepStates;  // step_states.h

// What software does around passes.
struct StepSoftware {
  HostWork pass;              // before a pass, and once before and after them all
  Seconds before_first_pass;  // of the host, where that begins the step
  Interference interference;
  bool hosts = false;  // decide when anything begins
};

// A pass of a schedule's slot, and what it does because of its place in the step.
struct PassKind {
  Pass pass{};
  bool begins_step = false;       // its stage's first
  bool reads_ahead = false;       // its chunk's first: reads what is gathered from the step's beginning on
  bool begins_gradients = false;  // its chunk's first that has gradients, of embedding and head at least
  bool begins_weights = false;    // its chunk's first with gradients of layers' products
  bool ends_gradients = false;    // the last that has them
  bool follows_input = false;     // the host's work before a pass was done before its part of inputs
  // All fields as one number below kPassCodes.
  constexpr unsigned code() const {
    return static_cast<unsigned>(pass) | (begins_step ? 4u : 0u) | (reads_ahead ? 8u : 0u) |
           (begins_gradients ? 16u : 0u) | (ends_gradients ? 32u : 0u) | (follows_input ? 64u : 0u) |
           (begins_weights ? 128u : 0u);
  }
};
inline constexpr std::size_t kPassCodes = 256;
// The kinds of passes that schedules have.
inline constexpr std::array<PassKind, 16> kPassKinds{{
    {.pass = Pass::forward},
    {.pass = Pass::forward, .reads_ahead = true},
    {.pass = Pass::forward, .begins_step = true, .reads_ahead = true},
    {.pass = Pass::backward},
    {.pass = Pass::backward, .begins_gradients = true, .begins_weights = true},
    {.pass = Pass::backward, .begins_weights = true},
    {.pass = Pass::backward, .ends_gradients = true},
    {.pass = Pass::backward_input},
    {.pass = Pass::backward_input, .begins_gradients = true},
    {.pass = Pass::backward_input, .ends_gradients = true},
    {.pass = Pass::backward_weight},
    {.pass = Pass::backward_weight, .begins_weights = true},
    {.pass = Pass::backward_weight, .begins_weights = true, .follows_input = true},
    {.pass = Pass::backward_weight, .ends_gradients = true},
    {.pass = Pass::backward_weight, .follows_input = true},
    {.pass = Pass::backward_weight, .ends_gradients = true, .follows_input = true},
}};
inline constexpr std::size_t kFirstForward = 1, kFirstOfStage = 2;

// A pass over a piece with its prices; how many units are gathered ahead is still open.
struct PricedPass {
  std::pmr::vector<TimedStep> steps;
  PassBegin begin;
};

// Prices of passes over pieces, with what each exchanges by the strategy's ZeRO stage.
class PassTimer {
 public:
  // Refers to all that it is given. `states`: null where passes exchange nothing and begin no gradients.
  // `single`: a chunk has one micro-batch, whose pass is both first and last.
  PassTimer(const Scenario& scenario, const ComputeTimes& compute, const StepStates* states,
            const StepSoftware& software, bool single);

  // The kind without the fields that make no difference in this scenario.
  PassKind normal(PassKind kind) const;
  // The kind whose pass takes no longer than any other of its sort, whatever is exchanged.
  PassKind least(Pass pass) const;
  // exchange(): the number of what is exchanged beside such a pass (-1: nothing). gathers(): whether the pass
  // depends on how many units are gathered ahead.
  int exchange(const PassKind& kind) const;
  bool gathers(const PassKind& kind) const;
  // `memory`: for its steps.
  PricedPass pass(const Piece& piece, const PassKind& kind, std::pmr::memory_resource* memory) const;

 private:
  bool reduces(const PassKind& kind) const;
  bool reads_ahead(const PassKind& kind) const;
  // Whether the unit's products write gradients.
  bool writes_gradients(const UnitStep& step, const PassKind& kind) const;
  TimedStep priced(const UnitStep& step, const PassKind& kind, const UnitBlocks* gather) const;

  const Scenario& scenario_;
  const ComputeTimes& compute_;
  const StepStates* states_;
  const StepSoftware& software_;
  bool single_, writes_, last_differs_ = false;
};

// What a stage does once a step, before its first pass and after its last.
struct StageEnds {
  Seconds begin, host_begin;
  FromEach finish;  // the end of the step, from where streams are after the last pass
};
// `units`: all of the stage's, in the order in which they are updated; `pieces`: as its chunks have them.
StageEnds stage_ends(const Scenario& scenario, std::span<const Piece::Run> units,
                     const std::vector<const Piece*>& pieces, bool at_an_end, const StepStates& states,
                     const StepSoftware& software);

}  // namespace sim
