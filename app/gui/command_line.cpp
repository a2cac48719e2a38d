#include "app/gui/command_line.h"

#include <string_view>
#include <type_traits>

namespace app::gui {
namespace {

class Line {
 public:
  void word(const char* flag, std::string_view value) {
    text_.append(" ").append(flag).append(" ").append(value);
  }
  void number(const char* flag, std::int64_t value) { word(flag, std::to_string(value)); }
  // Only where the flag says something.
  template <class Value>
  void unless(const char* flag, Value value, Value otherwise) {
    if (value == otherwise) return;
    if constexpr (std::is_integral_v<Value>)
      number(flag, value);
    else
      word(flag, value);
  }
  void when(bool set, const char* flag) {
    if (set) text_.append(" ").append(flag);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_ = "ridgepoint predict";
};

void add_strategy(Line& line, const sim::Strategy& s) {
  const sim::Strategy none;
  line.unless("--dp", s.data_parallel, 1);
  line.unless("--tp", s.tensor_parallel, 1);
  line.unless("--pp", s.pipeline_parallel, 1);
  line.unless("--cp", s.context_parallel, 1);
  line.unless("--ep", s.expert_parallel, 1);
  line.unless("--vpp", s.virtual_pipeline, 1);
  line.unless("--zero", s.zero_stage, 0);
  line.when(s.sequence_parallel, "--sequence-parallel");
  line.unless("--schedule", s.schedule, none.schedule);
  line.unless("--shard-group", s.shard_group, none.shard_group);
  line.unless("--prefetch", s.prefetch, none.prefetch);
  line.unless("--gradient-bucket", s.gradient_bucket, none.gradient_bucket);
  line.unless("--expert-dispatch", sim::name(s.expert_dispatch), sim::name(none.expert_dispatch));
  line.unless("--cp-comm", sim::name(s.context_parallel_comm), sim::name(none.context_parallel_comm));
  line.unless("--rank-order", s.rank_order, none.rank_order);
  line.unless("--recompute", sim::name(s.recompute), sim::name(none.recompute));
  line.unless("--recompute-interval", s.recompute_interval, none.recompute_interval);
  std::string operations;
  for (const std::string& word : s.recompute_operations)
    operations.append(operations.empty() ? "" : ",").append(word);
  if (!operations.empty()) line.word("--recompute-operations", operations);
  line.when(s.offload_optimizer, "--offload-optimizer");
  line.when(s.offload_activations, "--offload-activations");
}

}  // namespace

std::string command_line(const sim::Scenario& scenario) {
  const sim::Workload& w = scenario.workload;
  Line line;
  line.word("--model", scenario.model.name);
  line.word("--hardware", scenario.hardware.name);
  line.word("--implementation", scenario.implementation.name);
  line.word("--dtype", sim::name(w.dtype));
  line.word("--task", sim::name(w.task));
  if (w.task == sim::Task::train) {
    line.number("--seq-len", w.seq_len);
    line.number("--micro-batch", w.micro_batch_size);
    line.number("--global-batch", w.global_batch_size);
    line.unless("--optimizer", sim::name(w.optimizer), sim::name(sim::Optimizer::adamw));
    line.unless("--head-chunks", scenario.implementation.head_chunks, 1);
  } else {
    line.number("--prompt-length", w.prompt_length);
    line.number("--max-new-tokens", w.max_new_tokens);
    line.number("--batch-size", w.batch_size);
    line.when(!w.kv_cache, "--no-kv-cache");
    if (w.weights_dtype) line.word("--weights-dtype", sim::name(*w.weights_dtype));
    if (w.kv_dtype) line.word("--kv-dtype", sim::name(*w.kv_dtype));
    line.unless("--weights-group", w.weights_group, std::int64_t{0});
    if (scenario.implementation.serving)
      line.number("--kv-block", scenario.implementation.serving->kv_block);
    else
      line.unless("--kv-block", w.kv_block, std::int64_t{0});
  }
  add_strategy(line, scenario.strategy);
  return line.text();
}

}  // namespace app::gui
