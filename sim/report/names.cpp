#include "sim/enum_names.h"
#include "sim/report/metrics.h"
#include "sim/report/report.h"

namespace sim {
namespace {

constexpr std::array<EnumName<ReportKind>, 3> kReportKinds{{{ReportKind::predicted, "predicted"},
                                                            {ReportKind::measured, "measured"},
                                                            {ReportKind::recorded, "recorded"}}};
constexpr std::array<EnumName<Provenance>, 4> kProvenances{{{Provenance::measured, "measured"},
                                                            {Provenance::calibrated, "calibrated"},
                                                            {Provenance::interpolated, "interpolated"},
                                                            {Provenance::datasheet, "datasheet"}}};
constexpr std::array<EnumName<Bound>, 6> kBounds{{{Bound::compute, "compute"},
                                                  {Bound::memory, "memory"},
                                                  {Bound::launch, "launch"},
                                                  {Bound::network, "network"},
                                                  {Bound::host, "host"},
                                                  {Bound::bubble, "bubble"}}};
constexpr std::array<EnumName<FlopsConvention>, 5> kConventions{
    {{FlopsConvention::six_n, "6N"},
     {FlopsConvention::six_n_full, "6N + full attention"},
     {FlopsConvention::six_n_causal, "6N + causal attention"},
     {FlopsConvention::torchtitan, "torchtitan"},
     {FlopsConvention::all_parameters, "6 x all parameters"}}};
static_assert(kConventions.size() == kFlopsConventions);

}  // namespace

std::string_view name(ReportKind kind) {
  return name_in(kReportKinds, kind);
}
std::string_view name(Provenance provenance) {
  return name_in(kProvenances, provenance);
}
std::string_view name(Bound bound) {
  return name_in(kBounds, bound);
}
std::string_view name(FlopsConvention c) {
  return name_in(kConventions, c);
}
std::optional<ReportKind> report_kind_from_name(std::string_view text) {
  return value_in(kReportKinds, text);
}
std::optional<Provenance> provenance_from_name(std::string_view text) {
  return value_in(kProvenances, text);
}
std::optional<Bound> bound_from_name(std::string_view text) {
  return value_in(kBounds, text);
}

}  // namespace sim
