// Operations of a plan that become one kernel. For the emulated GPU alone: which of the two ways a real one
// takes is for its own timing to say.
#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/thread_emulated.h"
#include "runtime/cuda_device.h"
#include "runtime/run.h"
#include "sim/cost/predict.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

// A GPU that carries out every operation by itself.
class OneByOne final : public runtime::Device {
 public:
  explicit OneByOne(std::unique_ptr<runtime::Device> gpu) : gpu_(std::move(gpu)) {}

  std::string name() const override { return gpu_->name(); }
  std::span<const sim::DType> dtypes() const override { return gpu_->dtypes(); }
  runtime::KvCacheLimits kv_cache_limits() const override { return gpu_->kv_cache_limits(); }
  bool supports(const sim::Operation& operation, std::span<const sim::DType> operands) const override {
    return gpu_->supports(operation, operands);
  }
  bool takes_columns(const sim::Operation& operation, std::span<const sim::DType> operands) const override {
    return gpu_->takes_columns(operation, operands);
  }
  std::span<const sim::DType> weight_dtypes(sim::DType computing) const override {
    return gpu_->weight_dtypes(computing);
  }
  runtime::WeightGroups weight_groups(sim::DType stored) const override {
    return gpu_->weight_groups(stored);
  }
  void store_weight(std::span<std::byte> codes, std::span<std::byte> scales, std::span<const float> values,
                    const runtime::StoredWeight& weight) const override {
    gpu_->store_weight(codes, scales, values, weight);
  }
  sim::Bytes available() const override { return gpu_->available(); }
  std::byte* allocate(sim::Bytes size) override { return gpu_->allocate(size); }
  void release(std::byte* memory, sim::Bytes size) noexcept override { gpu_->release(memory, size); }
  sim::Bytes resident(const std::byte* memory, sim::Bytes size) const override {
    return gpu_->resident(memory, size);
  }
  sim::Bytes in_use() const override { return gpu_->in_use(); }
  void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
    gpu_->copy_to_device(to, from);
  }
  void copy_from_device(std::span<std::byte> to, const std::byte* from) override {
    gpu_->copy_from_device(to, from);
  }
  void begin(const runtime::RunSettings& settings) override { gpu_->begin(settings); }
  void run(const runtime::BoundOperation& operation, const runtime::RunSettings& settings) override {
    gpu_->run(operation, settings);
  }
  void record(std::size_t index) override { gpu_->record(index); }
  void synchronise() override { gpu_->synchronise(); }
  void stamps(std::span<double> seconds) const override { gpu_->stamps(seconds); }

 private:
  std::unique_ptr<runtime::Device> gpu_;
};

std::unique_ptr<runtime::Device> gpu() {
  return runtime::make_cuda_device({.deterministic = true, .scratch = sim::Bytes{1 << 22}});
}

// A prompt's prefill and the tokens behind it, and what a generation leaves: the last logits.
struct Tokens {
  std::vector<std::int32_t> chosen;
  std::vector<float> logits;
  std::vector<std::string> fused;  // "prefill kv_append into ..."
  std::int64_t launches = 0;       // of the last token
};

Tokens tokens_of(const sim::Scenario& scenario, std::unique_ptr<runtime::Device> device) {
  runtime::Run run(scenario, std::move(device));
  run.fill_parameters(tests::drawn(scenario.model), 1);
  const sim::Plan& plan = run.plan();
  const auto batch = static_cast<std::size_t>(scenario.workload.batch_size);
  Tokens result;
  std::vector<std::int32_t> tokens(batch * static_cast<std::size_t>(scenario.workload.prompt_length));
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(11 * i % 251);
  std::set<std::string> fused;
  for (std::size_t section = 0; section < run.executor().program().sections.size(); ++section) {
    const sim::Program& program = run.executor().program();
    const sim::Variables& v = program.actions.at(program.sections.at(section).begin).variables;
    const std::vector<std::int32_t> positions(batch, static_cast<std::int32_t>(v.kv_length - v.query_length));
    run.write(plan.find(sim::buffer_names::tokens), std::span<const std::int32_t>(tokens));
    run.write(plan.find(sim::buffer_names::positions), std::span<const std::int32_t>(positions));
    const std::int64_t before = kernels::cuda::emulation::submitted();
    const runtime::SectionTiming timing = run.executor().run(section, {});
    result.launches = kernels::cuda::emulation::submitted() - before;
    const std::vector<runtime::RowKey>& rows = run.executor().rows();
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const std::size_t into = timing.fused_into[r];
      if (into == runtime::SectionTiming::kAlone) continue;
      CHECK(timing.duration[r] == 0);
      CHECK(timing.count[r] == timing.count[into]);
      fused.insert(std::string(sim::name(rows[r].phase)) + " " + std::string(sim::name(rows[r].kind)) +
                   " into " + rows[into].id);
    }
    tokens.resize(batch);
    run.read(plan.find(sim::buffer_names::next_tokens), std::span(tokens));
    result.chosen.insert(result.chosen.end(), tokens.begin(), tokens.end());
  }
  result.logits.resize(batch * static_cast<std::size_t>(scenario.model.vocab_size));
  run.read(plan.find(sim::buffer_names::logits), std::span(result.logits));
  result.fused.assign(fused.begin(), fused.end());
  return result;
}

struct Step {
  runtime::SectionTiming timing;
  std::vector<runtime::RowKey> rows;
  std::vector<float> losses;
};

Step step_of(const sim::Scenario& scenario, std::unique_ptr<runtime::Device> device) {
  runtime::Run run(scenario, std::move(device));
  run.fill_parameters(tests::drawn(scenario.model), 1);
  const auto count = static_cast<std::size_t>(scenario.workload.micro_batch_size * scenario.workload.seq_len);
  std::vector<std::int32_t> tokens(count), targets(count);
  for (std::size_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<std::int32_t>(7 * i % 251);
    targets[i] = static_cast<std::int32_t>(5 * i % 251);
  }
  run.write(run.plan().find(sim::buffer_names::tokens), std::span<const std::int32_t>(tokens));
  run.write(run.plan().find(sim::buffer_names::targets), std::span<const std::int32_t>(targets));
  runtime::RunSettings settings;
  settings.adamw = {
      .learning_rate = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0, .step = 1};
  Step step{run.executor().run(0, settings), run.executor().rows(), std::vector<float>(count)};
  run.read(run.plan().find(sim::buffer_names::losses), std::span(step.losses));
  return step;
}

Step step_of(const sim::Scenario& scenario, bool deterministic) {
  return step_of(scenario,
                 runtime::make_cuda_device({.deterministic = deterministic, .scratch = sim::Bytes{1 << 22}}));
}

// "recompute gelu into layer.mlp.up.forward" of each row that has no kernel of its own.
std::vector<std::string> fused_rows(const Step& step) {
  std::vector<std::string> all;
  for (std::size_t r = 0; r < step.rows.size(); ++r) {
    const std::size_t into = step.timing.fused_into[r];
    if (into == runtime::SectionTiming::kAlone) continue;
    CHECK(step.timing.duration[r] == 0);
    CHECK(step.timing.count[r] == step.timing.count[into]);
    all.push_back(std::string(sim::name(step.rows[r].phase)) + " " +
                  std::string(sim::name(step.rows[r].kind)) + " into " + step.rows[into].id);
  }
  return all;
}

sim::Scenario training(const sim::Model& model, sim::Recompute recompute) {
  sim::Scenario scenario = tests::training(model, 16, 1, 1);
  scenario.workload.dtype = sim::DType::bf16;
  scenario.strategy.recompute = recompute;
  scenario.hardware.peak[sim::DType::bf16] = sim::tflops(0.1);
  return scenario;
}

}  // namespace

TEST_CASE("GELU and its gradient are the epilogues of the products before them, and their rows say so",
          "[plan]") {
  const Step step = step_of(training(tests::small_gpt(), sim::Recompute::none), false);
  CHECK(fused_rows(step) ==
        std::vector<std::string>{"forward gelu into layer.mlp.up.forward",
                                 "backward gelu_backward into layer.mlp.down.backward_input"});
  // The same numbers but for a rounding before GELU.
  const Step apart = step_of(training(tests::small_gpt(), sim::Recompute::none), true);
  CHECK(fused_rows(apart) ==
        std::vector<std::string>{"backward gelu_backward into layer.mlp.down.backward_input"});
  for (std::size_t i = 0; i < step.losses.size(); ++i)
    CHECK(step.losses[i] == Approx(apart.losses[i]).epsilon(0x1p-7));
  CHECK(fused_rows(step_of(training(tests::small_llama(), sim::Recompute::none), false)).empty());
}

TEST_CASE(
    "a prediction has one kernel where the device has one, with the time of both in the first one's row",
    "[plan]") {
  const auto predicted = [](const sim::Scenario& scenario) {
    std::vector<std::string> all;
    for (const sim::Row& row : sim::predict(scenario).rows) {
      if (row.fused_into.empty()) continue;
      CHECK(row.duration.value == 0);
      all.push_back(std::string(sim::name(row.phase)) + " " + std::string(sim::name(row.kind)) + " into " +
                    row.fused_into);
    }
    return all;
  };
  for (const sim::Model& model : {tests::small_gpt(), tests::small_llama()}) {
    sim::Scenario scenario = training(model, sim::Recompute::none);
    CHECK(predicted(scenario) == fused_rows(step_of(scenario, false)));
    scenario.implementation.runs_here = false;
    CHECK(predicted(scenario).empty());
  }
  sim::Scenario decoding = tests::generation(tests::small_llama(), 3, 2);
  decoding.hardware.peak[sim::DType::bf16] = sim::tflops(0.1);
  std::vector<std::string> rows = predicted(decoding);
  std::sort(rows.begin(), rows.end());
  CHECK(rows == tokens_of(decoding, gpu()).fused);
  decoding.hardware.is_cpu = true;
  CHECK(predicted(decoding).empty());
}

TEST_CASE("one kernel takes less time than two and no less than its own traffic", "[plan]") {
  sim::Scenario scenario = training(tests::small_gpt(), sim::Recompute::none);
  const sim::Report one = sim::predict(scenario);
  scenario.implementation.runs_here = false;
  const sim::Report two = sim::predict(scenario);
  const auto seconds = [](const sim::Report& report, sim::OpKind kind) {
    double sum = 0;
    for (const sim::Row& row : report.rows)
      if (row.kind == kind) sum += row.duration.value;
    return sum;
  };
  const double product = seconds(two, sim::OpKind::matmul), both = product + seconds(two, sim::OpKind::gelu);
  CHECK(seconds(one, sim::OpKind::gelu) == 0);
  CHECK(seconds(one, sim::OpKind::matmul) >= product);
  CHECK(seconds(one, sim::OpKind::matmul) < both);
}

TEST_CASE("a residual sum and its norm are one kernel, which leaves the bits of two", "[plan]") {
  for (const sim::Model& model : {tests::small_gpt(), tests::small_llama()})
    for (const sim::Recompute recompute : {sim::Recompute::none, sim::Recompute::full}) {
      CAPTURE(model.name, std::string(sim::name(recompute)));
      sim::Scenario scenario = training(model, recompute);
      scenario.implementation.fused_residual = false;
      const Step one = step_of(scenario, true), two = step_of(scenario, std::make_unique<OneByOne>(gpu()));
      CHECK(one.losses == two.losses);
      std::vector<std::string> sums;
      for (const std::string& row : fused_rows(one))
        if (row.ends_with("add into layer.mlp_norm.forward")) sums.push_back(row);
      CHECK(sums.front() == "forward add into layer.mlp_norm.forward");
      CHECK(sums.size() == (recompute == sim::Recompute::full ? 2 : 1));
      CHECK(fused_rows(two).empty());
      std::vector<std::string> predicted;
      for (const sim::Row& row : sim::predict(scenario).rows)
        if (row.kind == sim::OpKind::add && !row.fused_into.empty())
          predicted.push_back(std::string(sim::name(row.phase)) + " add into " + row.fused_into);
      CHECK(predicted == sums);
    }
}

TEST_CASE("GELU is an operation of its own where it is recomputed without its product", "[plan]") {
  sim::Scenario scenario = training(tests::small_gpt(), sim::Recompute::operations);
  scenario.strategy.recompute_operations = {"activation"};
  const Step again = step_of(scenario, false),
             none = step_of(training(tests::small_gpt(), sim::Recompute::none), true);
  CHECK(fused_rows(again) ==
        std::vector<std::string>{"backward gelu_backward into layer.mlp.down.backward_input"});
  CHECK(again.losses == none.losses);
}

// With nothing kept, GELU's result may lie where its product's operands were: then both stay apart, in the
// forward pass and where it is repeated.
TEST_CASE("operations whose memory overlaps are not fused, and a fused step with full recompute is right",
          "[plan]") {
  const Step full = step_of(training(tests::small_gpt(), sim::Recompute::full), false),
             none = step_of(training(tests::small_gpt(), sim::Recompute::none), true);
  for (std::size_t i = 0; i < none.losses.size(); ++i)
    CHECK(full.losses[i] == Approx(none.losses[i]).epsilon(0x1p-7));
  const std::vector<std::string> fused = fused_rows(full);
  const auto has = [&fused](const std::string& row) {
    return std::find(fused.begin(), fused.end(), row) != fused.end();
  };
  CHECK(has("forward gelu into layer.mlp.up.forward") == has("recompute gelu into layer.mlp.up.forward"));
}

TEST_CASE("rotation and KV append are one kernel, which leaves the bits of two, whatever the cache is",
          "[plan]") {
  struct Cache {
    sim::DType dtype;
    bool fp8;
    std::int64_t block;
  };
  for (const Cache cache : {Cache{sim::DType::fp32, false, 0}, Cache{sim::DType::bf16, false, 0},
                            Cache{sim::DType::bf16, false, 16}, Cache{sim::DType::fp16, false, 16},
                            Cache{sim::DType::bf16, true, 0}, Cache{sim::DType::bf16, true, 16}}) {
    CAPTURE(std::string(sim::name(cache.dtype)), cache.fp8, cache.block);
    sim::Scenario scenario = tests::generation(tests::small_llama(), 15, 2);  // into a second block
    scenario.workload.dtype = cache.dtype;
    scenario.hardware.peak[cache.dtype] = sim::tflops(0.1);
    if (cache.fp8) scenario.workload.kv_dtype = sim::DType::fp8;
    scenario.workload.kv_block = cache.block;
    const Tokens fused = tokens_of(scenario, gpu()),
                 apart = tokens_of(scenario, std::make_unique<OneByOne>(gpu()));
    CHECK(fused.fused == std::vector<std::string>{"decode kv_append into layer.attention.rope.forward",
                                                  "prefill kv_append into layer.attention.rope.forward"});
    CHECK(apart.fused.empty());
    CHECK(fused.chosen == apart.chosen);
    CHECK(fused.logits == apart.logits);
  }
}

namespace {

sim::Scenario decoding(sim::Model model, std::int64_t layers, std::int64_t sequences = 1) {
  model.num_hidden_layers = static_cast<std::int32_t>(layers);
  sim::Scenario scenario = tests::generation(model, 3, sequences);
  scenario.workload.dtype = sim::DType::bf16;
  scenario.hardware.peak[sim::DType::bf16] = sim::tflops(0.1);
  return scenario;
}

// But for bf16's roundings, some rows deep.
void check_alike(const Tokens& fused, const Tokens& apart) {
  CHECK(apart.fused.empty());
  double largest = 0;
  for (const float logit : apart.logits) largest = std::max(largest, std::abs(static_cast<double>(logit)));
  for (std::size_t i = 0; i < apart.logits.size(); ++i)
    CHECK(std::abs(fused.logits[i] - apart.logits[i]) <= 0x1p-5 * largest);
}

std::vector<std::string> predicted_in_decoding(const sim::Scenario& scenario) {
  std::set<std::string> predicted;
  for (const sim::Row& row : sim::predict(scenario).rows)
    if (!row.fused_into.empty() && row.phase == sim::Phase::decode)
      predicted.insert(std::string(sim::name(row.phase)) + " " + std::string(sim::name(row.kind)) + " into " +
                       row.fused_into);
  return {predicted.begin(), predicted.end()};
}

std::vector<std::string> fused_in_decoding(const Tokens& tokens) {
  std::vector<std::string> of_decoding;
  std::copy_if(tokens.fused.begin(), tokens.fused.end(), std::back_inserter(of_decoding),
               [](const std::string& row) { return row.starts_with("decode"); });
  return of_decoding;
}

}  // namespace

TEST_CASE("a token of one sequence takes five launches a layer, and its numbers are those of nine",
          "[plan]") {
  struct Case {
    sim::Model model;
    std::int64_t launches;
  };
  sim::Model biased = tests::small_llama();
  biased.attention_bias = true;
  sim::Model geglu = tests::small_llama();
  geglu.activation = sim::Activation::geglu;
  // Without rotation the append to the cache stays a kernel of its own.
  for (const Case& c :
       {Case{tests::small_llama(), 5}, Case{biased, 5}, Case{geglu, 5}, Case{tests::small_gpt(), 6}}) {
    CAPTURE(c.model.name);
    const Tokens two = tokens_of(decoding(c.model, 2), gpu()), three = tokens_of(decoding(c.model, 3), gpu());
    CHECK(three.launches - two.launches == c.launches);
    const Tokens apart = tokens_of(decoding(c.model, 3), std::make_unique<OneByOne>(gpu()));
    check_alike(three, apart);
    CHECK(predicted_in_decoding(decoding(c.model, 3)) == fused_in_decoding(three));
  }
}

TEST_CASE("tokens of few sequences take six launches a layer, and their numbers are those of nine",
          "[plan]") {
  sim::Model llama = tests::small_llama();  // rows of whole slices
  llama.hidden_size = llama.intermediate_size = 128;
  llama.num_attention_heads = 8;
  sim::Model geglu = llama;
  geglu.activation = sim::Activation::geglu;
  sim::Model layernorm = llama;
  layernorm.norm = sim::Norm::layernorm;
  struct Case {
    sim::Model model;
    std::int64_t sequences, launches;
    sim::DType weights;
  };
  // Norms are part of products up to 32 rows, of weights in 8 bits 16; gates up to 32, of 8 bits 64.
  constexpr sim::DType kBf16 = sim::DType::bf16, kInt8 = sim::DType::int8, kInt4 = sim::DType::int4;
  for (const Case& c : {Case{llama, 2, 6, kBf16}, Case{geglu, 16, 6, kBf16}, Case{llama, 17, 6, kBf16},
                        Case{llama, 40, 9, kBf16}, Case{llama, 5, 6, kInt8}, Case{llama, 40, 8, kInt8},
                        Case{llama, 3, 8, kInt4}, Case{llama, 40, 9, kInt4}, Case{layernorm, 2, 8, kBf16}}) {
    CAPTURE(c.sequences, std::string(sim::name(c.weights)), std::string(sim::name(c.model.norm)),
            std::string(sim::name(c.model.activation)));
    const auto scenario = [&](std::int64_t layers) {
      sim::Scenario s = decoding(c.model, layers, c.sequences);
      if (c.weights != kBf16) s.workload.weights_dtype = c.weights;
      if (c.weights == kInt4) s.workload.weights_group = 128;
      return s;
    };
    const Tokens one = tokens_of(scenario(1), gpu()), two = tokens_of(scenario(2), gpu());
    CHECK(two.launches - one.launches == c.launches);
    check_alike(two, tokens_of(scenario(2), std::make_unique<OneByOne>(gpu())));
    CHECK(predicted_in_decoding(scenario(2)) == fused_in_decoding(two));
  }
}
