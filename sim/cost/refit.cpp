#include "sim/cost/refit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/cost/fits.h"
#include "sim/quantile.h"
#include "sim/scenario/listed_fields.h"

namespace sim {

void fields(auto& v, Like<TableShift> auto& s) {
  using P = TableShift;
  needed<&P::what, &P::software, &P::factor, &P::rows, &P::median_before, &P::median, &P::p90>(v, s);
}

namespace {

constexpr int kSchemaVersion = 1;

// The middle of all but one of them, without a copy.
double middle_without(const std::vector<double>& sorted, std::size_t left_out) {
  const auto at = [&](std::size_t i) { return sorted[i < left_out ? i : i + 1]; };
  const std::size_t rest = sorted.size() - 1, half = rest / 2;
  return rest % 2 == 1 ? at(half) : (at(half - 1) + at(half)) / 2;
}

}  // namespace

TableShift shift_of(std::string what, std::string software, std::vector<double> ratios) {
  TableShift shift{.what = std::move(what),
                   .software = std::move(software),
                   .rows = static_cast<std::int64_t>(ratios.size())};
  if (ratios.empty()) return shift;
  // A table twice too fast is as far off as one twice too slow.
  for (double& ratio : ratios) ratio = std::log(ratio);
  std::ranges::sort(ratios);
  std::vector<double> before, held_out;
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    before.push_back(std::abs(std::expm1(-ratios[i])));
    if (ratios.size() >= kLeastRowsOfShift)
      held_out.push_back(std::abs(std::expm1(middle_without(ratios, i) - ratios[i])));
  }
  shift.median_before = quantile(before, 0.5);
  const bool nearer = !held_out.empty() && quantile(held_out, 0.5) < shift.median_before;
  if (nearer) shift.factor = std::exp(quantile(ratios, 0.5));
  const std::vector<double>& errors = nearer ? held_out : before;
  shift.median = quantile(errors, 0.5);
  shift.p90 = quantile(errors, 0.9);
  return shift;
}

void apply(const Refit& refit, GpuCalibration& gpu) {
  const std::vector<FittedRows> fits = published_fits(refit.hardware);
  for (const TableShift& shift : refit.shifts)
    for (std::size_t i = 0; i < fits.size(); ++i) {
      if (fits[i].what != shift.what || fits[i].software != shift.software) continue;
      if (i < gpu.kernels.size())
        gpu.kernels[i].factor = shift.factor;
      else if (i - gpu.kernels.size() < gpu.collectives.size())
        gpu.collectives[i - gpu.kernels.size()].factor = shift.factor;
    }
}

Refit refit_from_json(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  JsonObject object(json, file);
  if (object.small_integer("schema_version", 0) != kSchemaVersion)
    object.fail("schema_version", "must be " + std::to_string(kSchemaVersion));
  Refit refit{.hardware = object.text("hardware"),
              .rows_of = object.text("rows_of"),
              .date = object.text("date"),
              .shifts = {}};
  FieldReader(object, kNotNegative).needed("shifts", refit.shifts);
  object.finish();
  for (const TableShift& shift : refit.shifts)
    if (!(shift.factor > 0) || !std::isfinite(shift.factor)) object.fail("shifts.factor", "must be above 0");
  return refit;
}

std::string to_json(const Refit& refit) {
  Json json;
  json["schema_version"] = kSchemaVersion;
  json["hardware"] = refit.hardware;
  json["rows_of"] = refit.rows_of;
  json["date"] = refit.date;
  json["shifts"] = Json::array();
  FieldWriter writer(json);
  writer("shifts", refit.shifts);
  return json.dump(1) + "\n";
}

}  // namespace sim
