// Why one strategy is faster than another: what each spends its step on.
#pragma once
#include <string>
#include <vector>

#include "sim/cost/calibration.h"
#include "sim/enum_array.h"
#include "sim/scenario/scenario.h"
#include "sim/units.h"

namespace sim {

// A part of the step of the stage that works longest. Parts add up to the step.
enum class Spending {
  matrix_products,
  attention,
  other_compute,  // norms, activations, embedding, loss
  recomputation,  // all of it, of whatever kind
  tensor_exchange,
  context_exchange,
  expert_exchange,               // what products do not hide
  data_exchange,                 // gradients and parameters, where compute waits for them
  pipeline_exchange_and_bubble,  // waiting for other stages
  optimizer,
  host,     // compute waits for launches and for copies
  slowest,  // ranks wait for the slowest of them
};
// clang-format off
template <>
inline constexpr std::array<std::string_view, kCount<Spending>> kOtherWords<Spending>{
    "matrix products", "attention", "other compute", "recomputation", "tensor-parallel exchange",
    "context-parallel exchange", "expert-parallel exchange", "data-parallel exchange",
    "pipeline bubble and transfers", "optimizer", "waiting for the host", "waiting for the slowest"};
// clang-format on

struct SpendingRow {
  Spending part{};
  std::vector<Seconds> seconds;  // of each scenario
};

struct Explanation {
  std::vector<Seconds> step;      // of each scenario, by predict()
  std::vector<Bytes> memory;      // of its fullest device
  std::vector<SpendingRow> rows;  // parts that any scenario has; the largest difference first
  // "the first is 12 % faster: 0.8 s less bubble, 0.1 s more tensor exchange"; of one scenario, its largest
  // part.
  std::string sentence;
};

// By predict() of each. Throws std::invalid_argument where validate() has problems.
Explanation explain(const std::vector<Scenario>& scenarios, const Calibration* calibration);

}  // namespace sim
