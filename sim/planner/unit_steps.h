// What a pass over a piece of the model does, unit by unit, in the order in which plan/stage_program.h has
// its actions.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/planner/pass_time.h"
#include "sim/planner/piece.h"
#include "sim/planner/unit_prices.h"

namespace sim {

// Whose times a piece's layers have.
using UnitTime = ActionTime UnitTimes::*;
inline UnitTime unit_of(const Piece::Run& r) {
  return r.experts ? &UnitTimes::expert_layer : &UnitTimes::layer;
}

// Which gradients a pass reduces: those of each micro-batch, or of the last one.
enum class Reduce { none, each, last };

// Steps of a strategy's passes; `Step`: UnitStep, or DeviceStep where the host is ahead of the device.
class UnitSteps {
 public:
  // Refers to all that it is given.
  UnitSteps(const Scenario& scenario, const ComputeTimes& compute, const StateTimes& states,
            const HostWork& of_gather)
      : scenario_(scenario), compute_(compute), states_(states), of_gather_(of_gather) {}

  // Each fills `into` anew. `gather`: what is gathered, by whose times; null: nothing.
  template <class Step>
  void forward(const Piece& piece, const UnitTimes* gather, std::vector<Step>& into) const;
  // `pass`: the whole, or that of inputs; under ZeRO 3 parameters are gathered.
  template <class Step>
  void backward(const Piece& piece, ActionTime LayerTimes::*pass, Reduce reduce,
                std::vector<Step>& into) const;
  template <class Step>
  void weights(const Piece& piece, Reduce reduce, std::vector<Step>& into) const;

  // Messages that reduce all gradients of a piece, one after the other, but for an embedding that waits for
  // those of another direction.
  std::vector<UnitStep> reductions(const Piece& piece) const;
  bool defers_embedding() const;

 private:
  const UnitTimes* reduced(Reduce reduce) const;

  const Scenario& scenario_;
  const ComputeTimes& compute_;
  const StateTimes& states_;
  const HostWork& of_gather_;
};

}  // namespace sim
