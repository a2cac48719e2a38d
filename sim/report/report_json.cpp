#include "sim/report/report_json.h"

namespace sim {

std::string written(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

void fields(auto& v, Like<Report> auto& r) {
  v.needed("schema_version", r.schema_version);
  require_this_schema(v, r.schema_version);
  v.needed("source", r.source);
  v.needed("step_seconds", r.step_time.value);
  v.needed("step_low_seconds", r.step_low.value);
  v.needed("step_high_seconds", r.step_high.value);
  v("waiting_for_slowest_seconds", r.waiting_for_slowest.value);
  v("expert_imbalance", r.expert_imbalance);
  needed<&Report::message, &Report::rows, &Report::memory, &Report::memory_timeline, &Report::steps,
         &Report::tokens>(v, r);
  v("device_samples", r.device_samples);  // older reports have none
}

std::string to_json(const Report& report, int indent) {
  return written(FieldWriter::object_of(report), indent);
}

Report report_from_json(std::string_view text, const std::string& file) {
  return struct_from_text<Report>(text, file, kReportNumbers);
}

}  // namespace sim
