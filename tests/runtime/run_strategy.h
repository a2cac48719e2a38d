// A scenario trained by its ranks as threads of this process, and how far the results of two are apart.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/device.h"
#include "runtime/run.h"
#include "runtime/thread_ranks.h"
#include "runtime/train.h"
#include "tests/runtime/small_run.h"

namespace tests {

struct Trained {
  sim::Report report;                           // rank 0's
  std::vector<std::vector<double>> parameters;  // whole, in the order of one rank's plan
};

inline Trained train_on_ranks(sim::Scenario scenario, const runtime::TrainSettings& settings,
                              const std::function<std::unique_ptr<runtime::Device>()>& make_device) {
  // Reports of devices in double say what bounds their operations, too.
  scenario.hardware.peak[sim::DType::fp64] = scenario.hardware.peak[sim::DType::fp32];
  Trained trained;
  runtime::run_thread_ranks(scenario.strategy.devices(), [&](runtime::Transport& transport) {
    runtime::Communicator communicator(transport);
    runtime::Run run(scenario, make_device(), communicator);
    sim::Report report = runtime::train(run, drawn(scenario.model), settings, {}, {});
    std::vector<std::vector<double>> parameters;
    for (const runtime::InstanceName& name : run.whole_instances_of(sim::BufferClass::parameter))
      parameters.push_back(run.collect<double>(name));
    if (transport.rank() == 0) trained = {std::move(report), std::move(parameters)};
  });
  return trained;
}

inline double relatively_apart(double a, double b) {
  return std::abs(a - b) / std::abs(b);
}

// The largest relative difference between losses and gradient norms of the same step.
inline double steps_apart(const sim::Report& a, const sim::Report& b) {
  if (a.steps.size() != b.steps.size()) return HUGE_VAL;
  double most = 0;
  for (std::size_t i = 0; i < a.steps.size(); ++i)
    most = std::max({most, relatively_apart(a.steps[i].loss, b.steps[i].loss),
                     relatively_apart(a.steps[i].grad_norm, b.steps[i].grad_norm)});
  return most;
}

// The largest difference between elements of the same tensor, beside the tensor's largest.
inline double parameters_apart(const Trained& a, const Trained& b) {
  if (a.parameters.size() != b.parameters.size()) return HUGE_VAL;
  double most = 0;
  for (std::size_t t = 0; t < a.parameters.size(); ++t) {
    const std::vector<double>&x = a.parameters[t], &y = b.parameters[t];
    if (x.size() != y.size()) return HUGE_VAL;
    double difference = 0, largest = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      difference = std::max(difference, std::abs(x[i] - y[i]));
      largest = std::max(largest, std::abs(y[i]));
    }
    if (difference > 0) most = std::max(most, difference / largest);
  }
  return most;
}

}  // namespace tests
