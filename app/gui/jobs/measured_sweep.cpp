#include "app/gui/jobs/measured_sweep.h"

#include <cmath>
#include <exception>

#include "app/gui/jobs/child_process.h"
#include "app/gui/jobs/outlook.h"
#include "app/gui/jobs/passed_file.h"
#include "app/gui/jobs/run_command.h"
#include "sim/format.h"
#include "sim/report/events.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

sim::Report run(const MeasuredSweepQuestion& question, const sim::Scenario& scenario,
                const RunChoices& choices, const MeasuredSweepStudy::Course& course) {
  const PassedFile file("sweep.json", sim::to_json(scenario));
  sim::Report report;
  run_to_end(
      run_command(question.executable, file.path(), scenario, choices),
      [&](std::string_view line) {
        try {
          sim::apply(report, sim::event_from_ndjson(line));
        } catch (const std::exception&) {  // a word of a library: the run's end says whether it failed
        }
      },
      [&] { return course.stopped(); });
  return report;
}

}  // namespace

SweepPoint sweep_point(double value, const sim::Report& report) {
  const bool train = report.source.scenario.workload.task == sim::Task::train;
  return {value,
          static_cast<double>(sim::peak_memory(report).value),
          sim::tokens_per_second(report),
          sim::step_time(report).value,
          train ? sim::mfu(report, sim::FlopsConvention::six_n_causal) : sim::mbu(report),
          static_cast<double>(sim::planned_memory(report).value)};
}

MeasuredSweep measure_sweep(const MeasuredSweepQuestion& question, const MeasuredSweepStudy::Course& course) {
  MeasuredSweep found;
  RunChoices choices;
  choices.place = question.place;
  choices.steps = kSweptSteps;
  std::int64_t done = 0;
  for (const auto& [value, scenario] : question.values) {
    if (course.stopped()) break;
    const std::string name = sim::format_count(std::llround(value));
    course.report(done++, std::ssize(question.values), name);
    const Outlook outlook = outlook_of({scenario, kSweptSteps, question.here, question.place});
    if (!outlook.refusal.empty()) {
      found.left_out.push_back(name + ": " + outlook.refusal);
    } else if (outlook.expected && *outlook.expected > kLongestSweptRun) {
      found.left_out.push_back(name + ": would take " + sim::format(*outlook.expected));
    } else {
      try {
        const sim::Report report = run(question, scenario, choices, course);
        if (course.stopped()) break;
        if (report.step_time.value > 0) found.points.push_back(sweep_point(value, report));
      } catch (const std::exception& error) {
        found.left_out.push_back(name + ": " + error.what());
      }
    }
    course.show(found);
  }
  return found;
}

}  // namespace app::gui
