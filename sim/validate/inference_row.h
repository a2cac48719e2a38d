// The case that a row of a table of generation and serving measured.
#pragma once
#include <optional>

#include "sim/cost/calibration.h"
#include "sim/scenario/scenario.h"
#include "sim/validate/row.h"

namespace sim {

// How requests reached the engine.
enum class Load {
  batch,        // a batch of known size
  concurrency,  // a fixed number of requests at any time
  rate,         // requests at random times
  saturated,    // all requests at once: the most that the engine can do
};

struct InferenceCase {
  Scenario scenario;  // batch_size: the batch, or the requests at any time; 0 where saturated
  std::optional<Calibration> calibration;
  Load load = Load::batch;
  std::optional<double> requests_per_second;
  int replicas = 1;              // engines that share the work: GPUs beyond those of one
  bool assumed_lengths = false;  // the row does not give the lengths
  bool nearest_engine = false;   // no profile is of its software; the nearest engine stands for it
};

// Throws CannotPredict.
InferenceCase inference_case(const TableRow& row);

}  // namespace sim
