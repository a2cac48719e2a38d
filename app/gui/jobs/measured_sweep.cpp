#include "app/gui/jobs/measured_sweep.h"

#include <cmath>
#include <exception>
#include <functional>
#include <variant>

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

// `say` is told what goes on before the first step: a machine that is not known is measured first.
sim::Report run(const MeasuredSweepQuestion& question, const sim::Scenario& scenario,
                const RunChoices& choices, const MeasuredSweepStudy::Course& course,
                const std::function<void(const std::string& what)>& say) {
  const PassedFile file("sweep.json", sim::to_json(scenario));
  sim::Report report;
  run_to_end(
      run_command(question.executable, file.path(), scenario, choices),
      [&](std::string_view line) {
        try {
          const sim::Event event = sim::event_from_ndjson(line);
          if (const auto* step = std::get_if<sim::ProgressEvent>(&event))
            say(step->what + " " + sim::format_count(step->done) + " of " + sim::format_count(step->of));
          sim::apply(report, event);
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
  // A machine that is not known is measured by the first run on it, whose process holds more from then on.
  if (!question.here && !question.values.empty()) try {
      run(question, question.values.front().second, choices, course, [&](const std::string& what) {
        course.report(0, std::ssize(question.values), "nothing yet, " + what);
      });
    } catch (const std::exception&) {  // the same run below says why
    }
  for (const auto& [value, scenario] : question.values) {
    if (course.stopped()) break;
    const std::string name = sim::format_count(std::llround(value));
    const auto say = [&](const std::string& what) {
      course.report(done, std::ssize(question.values), name + what);
    };
    say("");
    const Outlook outlook = outlook_of({scenario, kSweptSteps, question.here, question.place});
    if (!outlook.refusal.empty()) {
      found.left_out.push_back(name + ": " + outlook.refusal);
    } else if (outlook.expected && *outlook.expected > kLongestSweptRun) {
      found.left_out.push_back(name + ": would take " + sim::format(*outlook.expected));
    } else {
      try {
        const sim::Report report =
            run(question, scenario, choices, course, [&](const std::string& what) { say(", " + what); });
        if (course.stopped()) break;
        if (report.step_time.value > 0) found.points.push_back(sweep_point(value, report));
      } catch (const std::exception& error) {
        found.left_out.push_back(name + ": " + error.what());
      }
    }
    ++done;
    course.show(found);
  }
  return found;
}

}  // namespace app::gui
