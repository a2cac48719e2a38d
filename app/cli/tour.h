// The tour: it trains a model and generates with another on this machine, each beside its prediction.
#pragma once
#include <cstdint>
#include <string>

#include "app/cli/exit_code.h"

namespace app::cli {

struct TourOptions {
  std::string out = "out";  // folder for reports, tables, events and pictures
  std::int64_t steps = 0;   // of training; 0: as many as fit kTrainingTime by the prediction
  std::uint64_t seed = 1;
  int threads = 0;  // 0: all cores
};

ExitCode run_tour(const TourOptions& options);

}  // namespace app::cli
