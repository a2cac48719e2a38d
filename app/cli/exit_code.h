// The program's exit codes, and the one place that decides which one an error gets.
#pragma once
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim/plan/legality.h"
#include "sim/scenario/scenario.h"

namespace app::cli {

enum class ExitCode {
  fine = 0,
  internal = 1,
  usage = 2,         // an unknown flag, or a flag's value that is not legal
  constraint = 3,    // the scenario contradicts itself, or does not fit the device
  bad_input = 4,     // a file is missing or wrong
  no_device = 5,     // nothing here can do it (also: no display)
  device_error = 6,  // the device failed, memory or disk is full
  differs = 7,       // a result differs from a golden
  interrupted = 130,
};

// The error of a flag's value that is not legal: one sentence that names the flag and what would be accepted.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The error of a scenario that is not legal: one line for each problem, with its field.
struct ConstraintError : std::runtime_error {
  explicit ConstraintError(const std::vector<sim::Problem>& problems);
};

struct Failure {
  ExitCode code = ExitCode::internal;
  std::string message;
};

Failure failure_of(const std::exception_ptr& error);

}  // namespace app::cli
