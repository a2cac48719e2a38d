#include "sim/cost/refit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/quantile.h"
#include "sim/scenario/listed_fields.h"

namespace sim {

void fields(auto& v, Like<TableShift> auto& s) {
  using P = TableShift;
  needed<&P::what, &P::software, &P::factor, &P::rows, &P::median_before, &P::median, &P::p90>(v, s);
  v.require(s.factor > 0 && std::isfinite(s.factor), "factor", "must be above 0");
}

void fields(auto& v, Like<Refit> auto& r) {
  int version = 1;
  v.needed("schema_version", version);
  v.require(version == 1, "schema_version", "must be 1");
  needed<&Refit::hardware, &Refit::rows_of, &Refit::date, &Refit::shifts>(v, r);
}

namespace {

// The median of all values but one, without a copy.
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
  // By logarithms, a table twice too fast is as far off as one twice too slow.
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
  const auto shift = [&](auto& tables) {
    for (auto& table : tables)
      for (const TableShift& s : refit.shifts)
        if (table.fit.what == s.what && table.fit.software == s.software) table.factor = s.factor;
  };
  shift(gpu.kernels);
  shift(gpu.collectives);
}

Refit refit_from_json(std::string_view text, const std::string& file) {
  return struct_from_text<Refit>(text, file, kNotNegative);
}

std::string to_json(const Refit& refit) {
  return FieldWriter::object_of(refit).dump(1) + "\n";
}

}  // namespace sim
