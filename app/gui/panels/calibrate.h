// What the Calibrate panel asks for and shows.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/gui/panels/panels.h"
#include "sim/cost/fits.h"
#include "sim/cost/refit.h"

namespace app::gui {

// Whose measurements: a hardware preset's, or this machine's.
struct FitsQuestion {
  std::string hardware;
  std::shared_ptr<const sim::Calibration> here;  // of this machine, where that is asked for; else null
  bool operator==(const FitsQuestion&) const = default;
};

struct FittedPoint {
  std::string kind, shape;
  double measured = 0, predicted = 0;  // seconds; predicted from all others of the kind
};

// The 90 % band of a table over predicted times.
struct FittedBand {
  std::string kernel;
  std::vector<sim::ErrorBand> bands;
};

struct FitsView {
  std::vector<sim::FittedRows> fits;
  std::vector<FittedBand> bands;    // of published tables, the first of each kernel
  std::vector<FittedPoint> points;  // of this machine alone: published rows are not shipped
};

// Which measurements the time of an operation rests on.
struct TraceQuestion {
  sim::Scenario scenario;
  std::shared_ptr<const sim::Calibration> calibration;  // may be null
  std::string operation;                                // phase and id: "forward layer.mlp.up.forward"
  bool operator==(const TraceQuestion&) const = default;
};

// A table of the user's own, for the tables of a preset.
struct RefitQuestion {
  std::string hardware;
  std::filesystem::path rows;
  int attempt = 0;  // the file may have changed since the last
  bool operator==(const RefitQuestion&) const = default;
};

struct CalibrateState {
  explicit CalibrateState(const PanelTools& tools);
  Calibrations& calibrations;
  Study<FitsQuestion, FitsView>& fits;
  // Empty where the plan has no such operation: a serving engine's rows are sums of several.
  Study<TraceQuestion, std::optional<sim::PriceTrace>>& trace;
  Study<RefitQuestion, sim::Refit>& refit;
  std::string hardware;  // that is shown; empty: the scenario's
  std::string rows;      // path of the table to refit to
  bool tried = false;    // the refit's result is shown, and not kept yet
  int attempts = 0;
  int tab = 0;
};

}  // namespace app::gui
