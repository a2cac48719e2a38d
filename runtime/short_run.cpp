#include "runtime/short_run.h"

#include "runtime/error.h"
#include "runtime/generate.h"
#include "runtime/model_source.h"

namespace runtime {

sim::Report short_run(const sim::Scenario& scenario, const ShortRun& run, const EventSink& sink,
                      const std::stop_token& stop) {
  const ModelSource model{scenario.model, "short run", std::nullopt, {}};
  if (scenario.workload.task == sim::Task::train) {
    TrainSettings settings;
    settings.steps = run.steps;
    settings.device = run.device;
    settings.slowdown = run.slowdown;
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
  return (run.among ? generate(scenario, model, settings, *run.among, sink, stop)
                    : generate(scenario, model, settings, sink, stop))
      .report;
}

}  // namespace runtime
