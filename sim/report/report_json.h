// The parts of a report as lists of their fields; events are made of the same parts. Included by .cpp files
// only.
#pragma once
#include "sim/plan/legality.h"
#include "sim/report/report.h"
#include "sim/scenario/listed_fields.h"
#include "sim/scenario/scenario_json.h"

namespace sim {

// Bounds of counts and bytes: up to 2^53 (8 PiB), so that sums of such numbers stay within 64 bits.
inline constexpr LegalNumbers kReportNumbers{
    .least_count = 0, .most_count = std::int64_t{1} << 53, .words = "must be from 0 to 2^53"};

void require_this_schema(auto& v, int version) {
  v.require(version == kReportSchemaVersion, "schema_version",
            "must be " + std::to_string(kReportSchemaVersion));
}

void fields(auto& v, Like<Slowdown> auto& slowdown) {
  constexpr const char* kLegal = "must be above 0: 2 is twice as long as when calibrated";
  v.needed("arithmetic", slowdown.arithmetic);
  v.require(slowdown.arithmetic > 0, "arithmetic", kLegal);
  v.needed("memory", slowdown.memory);
  v.require(slowdown.memory > 0, "memory", kLegal);
  v("error", slowdown.error);
  v.require(slowdown.error >= 0, "error", "must be 0 or above, a share");
}

void fields(auto& v, Like<Source> auto& s) {
  v.needed("kind", s.kind);
  if constexpr (reads<decltype(v)>) {
    s.scenario = scenario_from(v.object("scenario"));
    if (const std::vector<Problem> problems = problems_of_numbers(s.scenario); !problems.empty())
      v.require(false, "scenario." + problems.front().field, problems.front().message);
  } else {
    v.object("scenario", json_of(s.scenario));
  }
  needed<&Source::device, &Source::date, &Source::software, &Source::seed, &Source::calibration>(v, s);
  v.unless_zero("slowdown", s.slowdown);
}

void fields(auto& v, Like<Row> auto& r) {
  v.needed("id", r.id);
  v.needed("phase", r.phase);
  v("rank", r.rank);
  v.needed_word("kind", r.kind, "the kinds of operations of a plan");
  v.needed("count", r.count);
  v.needed("start_seconds", r.start.value);
  v.needed("duration_seconds", r.duration.value);
  v.needed("low_seconds", r.low.value);
  v.needed("high_seconds", r.high.value);
  v.needed("flops", r.flops.value);
  v.needed("model_flops", r.model_flops.value);
  v.needed("memory_bytes", r.memory.value);
  v.needed("network_bytes", r.network.value);
  v.needed("bound", r.bound);
  v.needed("provenance", r.provenance);
  v.unless_zero("fused_into", r.fused_into);
  if constexpr (reads<decltype(v)>) {
    std::optional<double> exposed;
    v("exposed_seconds", exposed);
    v.require(!exposed || *exposed >= 0, "exposed_seconds", "must be 0 or more");
    if (exposed) r.exposed = Seconds{*exposed};
  } else if (r.exposed) {
    v("exposed_seconds", r.exposed->value);
  }
}

void fields(auto& v, Like<MemoryByClass> auto& bytes) {
  for (std::size_t c = 0; c < bytes.size(); ++c)
    v.needed(name(static_cast<BufferClass>(c)), bytes[c].value);
}

void fields(auto& v, Like<MemoryTimePoint> auto& point) {
  v.needed("time_seconds", point.time.value);
  v.needed("bytes", point.bytes);
}

void fields(auto& v, Like<MemoryLine> auto& line) {
  v.needed("category", line.category);
  v("rank", line.rank);
  v.needed("bytes", line.bytes.value);
}

void fields(auto& v, Like<StepResult> auto& step) {
  needed<&StepResult::step, &StepResult::loss, &StepResult::grad_norm>(v, step);
  v.needed("seconds", step.duration.value);
  v.needed("tokens", step.tokens);
  v("micro_batch_grad_norm", step.micro_batch_grad_norm);
  v("noise_scale_sequences", step.noise_scale);
}

void fields(auto& v, Like<TokenResult> auto& token) {
  v.needed("index", token.index);
  v("token", token.token);
  v.needed("text", token.text);
  v.needed("seconds", token.duration.value);
  v("surprise_nats", token.surprise);
}

void fields(auto& v, Like<DeviceSample> auto& sample) {
  using P = DeviceSample;
  v.needed("time_seconds", sample.time.value);
  needed<&P::sm_clock_mhz, &P::memory_clock_mhz, &P::power_w, &P::temperature_c, &P::throttle>(v, sample);
}

// Text that is not UTF-8 (half of a character of a byte-level vocabulary) is written with U+FFFD.
std::string written(const Json& json, int indent);

}  // namespace sim
