// A report: written again as it was read, compared with itself, and what is computed of it.
// Read by: sim/report/report_json.cpp sim/report/compare.cpp sim/json_object.cpp
#include "sim/report/report.h"

#include "sim/cost/predict.h"
#include "sim/report/compare.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  sim::Scenario scenario;
  scenario.model = sim::load_model_preset("tiny-llama");
  scenario.hardware = sim::load_hardware_preset("h100-sxm");
  scenario.implementation = sim::load_implementation_preset("ridgepoint");
  std::vector<std::string> all;
  for (const char* const workload : {"laptop-train", "laptop-generate"}) {
    scenario.workload = sim::load_workload_preset(workload);
    sim::Report report = sim::predict(scenario);
    report.rows.resize(3);
    report.memory_timeline.resize(2);
    report.steps = {{1, 4.5, 1.25, {0.5}, 64}};
    if (report.tokens.size() > 2) report.tokens.resize(2);
    report.device_samples = {{{1.5}, 1755, 2619, 698.5, 61, "power cap"}};
    report.message = "interrupted";
    all.push_back(sim::to_json(report, -1));
  }
  return all;
}

void fuzz::read(std::string_view input) {
  const sim::Report report = sim::report_from_json(input, kFile);
  const std::string written = sim::to_json(report);
  require_same(sim::to_json(sim::report_from_json(written, kFile)), written,
               "a report is written as it is read");
  sim::to_text(sim::compare(report, report));
  sim::to_json(sim::compare(report, report));
  sim::mfu(report, sim::FlopsConvention::six_n_causal);
  sim::hfu(report);
  sim::mbu(report);
  sim::tokens_per_second(report);
  sim::fits(report);
}
