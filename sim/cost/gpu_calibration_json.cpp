// Reads presets/calibrations/NAME.json, which scripts/calibrations_from_published.py writes.
#include <filesystem>
#include <limits>

#include "sim/cost/gpu_calibration.h"
#include "sim/file_text.h"
#include "sim/format.h"
#include "sim/json_object.h"
#include "sim/scenario/preset.h"

namespace sim {
namespace {

constexpr double kHundredth = 0.01;  // grids hold hundredths of a natural logarithm

std::vector<double> numbers(JsonObject& object, const std::string& key) {
  const Json& array = object.at(key);
  std::vector<double> values;
  if (array.is_array())
    for (const Json& item : array)
      if (item.is_number()) values.push_back(item.get<double>());
  if (values.empty() || values.size() != array.size()) object.fail(key, "must be an array of numbers");
  return values;
}

// Reads lines along the last axis: each holds the first value, then the change to each next one.
std::vector<float> from_steps(JsonObject& object, const std::string& key, std::size_t run) {
  std::vector<float> values;
  const Json& lines = object.at(key);
  if (!lines.is_array()) object.fail(key, "must be an array of arrays");
  for (const Json& line : lines) {
    if (!line.is_array() || line.size() != run)
      object.fail(key, "must have " + std::to_string(run) + " numbers in each line");
    double at = 0;
    for (const Json& step : line) {
      if (!step.is_number()) object.fail(key, "must be an array of arrays of numbers");
      at += step.get<double>();
      values.push_back(static_cast<float>(kHundredth * at));
    }
  }
  return values;
}

RatioGrid grid_from(JsonObject& object, std::vector<RatioGrid::Axis> axes) {
  std::vector<float> values = from_steps(object, "log_ratio_steps", axes.back().values.size());
  try {
    return {std::move(axes), std::move(values)};
  } catch (const std::invalid_argument& error) {
    object.fail("log_ratio_steps", error.what());
  }
}

std::vector<ErrorBand> bands_from(JsonObject& object) {
  std::vector<ErrorBand> bands;
  for (JsonObject& entry : object.objects("bands")) {
    ErrorBand band;
    band.below = us(entry.number("below_us", std::numeric_limits<double>::infinity()));
    band.low = entry.number("low");
    band.high = entry.number("high");
    if (!(band.low > -1 && band.low <= band.high)) entry.fail("low", "must be above -1 and at most \"high\"");
    entry.finish();
    bands.push_back(band);
  }
  if (bands.empty()) object.fail("bands", "must have an entry");
  return bands;
}

FittedRows fit_from(JsonObject& object, std::string what) {
  FittedRows fit{.what = std::move(what),
                 .software = object.text("software"),
                 .source = object.text("source"),
                 .hardware = {}};
  if (!object.has("residual")) return fit;
  JsonObject residual = object.object("residual");
  fit.rows = residual.integer("rows", 0);
  fit.median = residual.number("median", 0);
  fit.p90 = residual.number("p90", 0);
  if (residual.has_value("bias")) fit.bias = residual.number("bias");
  if (residual.has_value("inside_band")) fit.inside_band = residual.number("inside_band");
  return fit;
}

KernelTable kernel_from(JsonObject object) {
  KernelTable table;
  table.kernel = object.word<MeasuredKernel>("kernel");
  table.dtype = object.word<DType>("dtype", "bf16, fp8");
  table.fit = fit_from(object, sentence(name(table.kernel), ", ", name(table.dtype)));
  table.only_where_named = object.boolean("only_where_named", false);
  table.between_nodes_factor = object.number("between_nodes_factor", 1);
  if (!(table.between_nodes_factor > 0)) object.fail("between_nodes_factor", "must be above 0");
  table.bands = bands_from(object);
  const Json& axes = object.at("axes");
  JsonObject axis_values = object.object("axes");
  std::vector<RatioGrid::Axis> read;
  for (const auto& [key, value] : axes.items()) read.push_back({key, numbers(axis_values, key)});
  if (read.empty()) object.fail("axes", "must have an entry");
  table.grid = grid_from(object, std::move(read));
  object.finish();
  return table;
}

CollectiveCurve curve_from(JsonObject object) {
  CollectiveCurve curve;
  curve.operation = object.word<CollectiveOperation>("operation");
  curve.nodes = object.small_integer("nodes", 1);
  curve.ranks = object.small_integer("ranks", 1);
  curve.fit = fit_from(object, sentence(name(curve.operation), ", ", curve.ranks, " ranks on ", curve.nodes,
                                        curve.nodes == 1 ? " node" : " nodes"));
  curve.latency = us(object.number("latency_us"));
  curve.bus = gb_per_s(object.number("bus_gb_per_s"));
  curve.ramp = 1e-6 * object.number("ramp_us_per_sqrt_mb") / 1e3;  // sqrt(1e6) = 1e3
  if (curve.ranks < 2) object.fail("ranks", "must be 2 or more");
  if (!(curve.latency.value >= 0)) object.fail("latency_us", "must be 0 or more");
  if (!(curve.bus.value > 0)) object.fail("bus_gb_per_s", "must be above 0");
  if (!(curve.ramp >= 0)) object.fail("ramp_us_per_sqrt_mb", "must be 0 or more");
  curve.bands = bands_from(object);
  curve.grid = grid_from(object, {{"bytes", numbers(object, "bytes")}});
  object.finish();
  return curve;
}

// `depth`: how many calibrations refer to this one in a chain.
std::optional<GpuCalibration> load(const std::string& hardware, int depth) {
  constexpr int kDeepest = 4;
  const std::filesystem::path path = preset_directory() / "calibrations" / (hardware + ".json");
  const std::optional<std::string> text = file_text(path);
  if (!text) return std::nullopt;
  const Json json = parse_json(*text, path.string());
  JsonObject object(json, path.string());
  GpuCalibration gpu;
  object.text("hardware");
  object.text("source");
  const auto other = [&](std::string_view key) {
    const std::string name = object.text(key);
    std::optional<GpuCalibration> tables = depth == kDeepest ? std::nullopt : load(name, depth + 1);
    if (!tables) object.fail(key, "must name another calibration beside it");
    for (KernelTable& table : tables->kernels)
      if (table.fit.hardware.empty()) table.fit.hardware = name;
    for (CollectiveCurve& curve : tables->collectives)
      if (curve.fit.hardware.empty()) curve.fit.hardware = name;
    return *std::move(tables);
  };
  if (object.has("kernels_of")) {  // tables of the same chip
    GpuCalibration tables = other("kernels_of");
    gpu.launch = tables.launch;
    gpu.kernels = std::move(tables.kernels);
  } else {
    gpu.launch = us(object.number("launch_us"));
    if (!(gpu.launch.value >= 0)) object.fail("launch_us", "must be 0 or more");
    for (const JsonObject& table : object.objects("kernels")) gpu.kernels.push_back(kernel_from(table));
  }
  if (object.has("collectives_of")) gpu.collectives = other("collectives_of").collectives;  // the same links
  for (const JsonObject& curve : object.objects("collectives")) gpu.collectives.push_back(curve_from(curve));
  object.finish();
  return gpu;
}

}  // namespace

std::optional<GpuCalibration> load_gpu_calibration(const std::string& hardware) {
  return load(hardware, 0);
}

}  // namespace sim
