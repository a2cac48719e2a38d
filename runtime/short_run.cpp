#include "runtime/short_run.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/error.h"
#include "runtime/generate.h"
#include "runtime/measured.h"
#include "runtime/model_source.h"
#include "sim/quantile.h"
#include "sim/report/metrics.h"

namespace runtime {

sim::Seconds judged_time(const sim::Report& report) {
  const sim::Workload& workload = report.source.scenario.workload;
  if (workload.task != sim::Task::generate || !workload.kv_cache || report.tokens.size() < 2)
    return sim::step_time(report);
  std::vector<double> decoded;
  for (std::size_t i = 1; i < report.tokens.size(); ++i) decoded.push_back(report.tokens[i].duration.value);
  return {sim::quantile(decoded, 0.5)};
}

sim::Report short_run(const sim::Scenario& scenario, const ShortRun& run, const EventSink& sink,
                      const std::stop_token& stop) {
  const ModelSource model{scenario.model, "short run", std::nullopt, {}};
  if (scenario.workload.task == sim::Task::train) {
    TrainSettings settings;
    settings.steps = run.steps;
    settings.device = run.device;
    // A GPU's first few steps are timed operation by operation, which takes longer, the others as one.
    settings.replay = run.device.kind == DeviceChoice::Kind::cuda;
    settings.slowdown = run.slowdown;
    if (run.learning_steps > 0) {
      settings.steps = run.learning_steps;
      settings.learning_rate = 3e-3f;
    }
    return run.among ? train(scenario, model, settings, *run.among, sink, stop)
                     : train(scenario, model, settings, sink, stop);
  }
  GenerateSettings settings;
  settings.ignore_eos = true;  // as many tokens as the scenario says
  settings.device = run.device;
  settings.slowdown = run.slowdown;
  if (run.reader) {
    if (run.text.size() < 2) throw InputError("the text that is read has no second token");
    settings.prompt = {run.text.front()};
    settings.read.assign(run.text.begin() + 1, run.text.end());
    return generate(scenario, *run.reader, settings, sink, stop).report;
  }
  // The likeliest token of an untrained model is soon the same again and again, and so are the experts that
  // it chooses, which then lie in the caches as no text's do.
  settings.temperature = 1;
  for (std::int64_t i = 0; i < scenario.workload.prompt_length; ++i)
    settings.prompt.push_back(static_cast<std::int32_t>(i * 7919 % scenario.model.vocab_size));
  Communicator alone;
  std::vector<Generation> generations = generate_repeatedly(run.generations, scenario, model, settings,
                                                            run.among ? *run.among : alone, sink, stop);
  const auto middle = generations.begin() + (std::ssize(generations) - 1) / 2;
  std::ranges::nth_element(generations, middle, {},
                           [](const Generation& generation) { return judged_time(generation.report); });
  std::vector<sim::Row>& rows = middle->report.rows;
  std::vector<std::vector<double>> times(rows.size());
  for (const Generation& generation : generations)
    if (generation.report.rows.size() == rows.size())  // one that was stopped has fewer
      for (std::size_t r = 0; r < rows.size(); ++r)
        times[r].push_back(generation.report.rows[r].duration.value);
  set_medians(rows, times);
  set_exposed(rows);
  return std::move(middle->report);
}

}  // namespace runtime
