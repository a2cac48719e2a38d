#include "sim/plan/plan.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "sim/cost/predict.h"
#include "sim/cost/work.h"
#include "sim/plan/builder.h"
#include "sim/plan/legality.h"
#include "tests/sim/check_plan.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

std::int64_t parameters(const Plan& plan) {
  const Model& m = plan.scenario.model;
  std::int64_t sum = 0;
  for (const Buffer& b : plan.buffers) {
    if (b.buffer_class != BufferClass::parameter) continue;
    const auto of = [&](const char* part) { return b.name.starts_with(part); };
    const bool sparse = of("layer.experts.") || of("layer.router.") || of("layer.shared_expert.");
    const std::int64_t layers = sparse             ? m.expert_layers()
                                : of("layer.mlp.") ? m.num_hidden_layers - m.expert_layers()
                                                   : m.num_hidden_layers;
    sum += b.elements({}) * (b.per_layer ? layers : 1);
  }
  return sum;
}

// Executions of an operation in a program.
std::int64_t count(const Plan& plan, const std::string& id, Phase phase) {
  std::int64_t n = 0;
  for (const Action& a : plan.programs.front().actions)
    for (const Operation& op : plan.blocks[a.block].operations) n += a.phase == phase && op.id == id;
  return n;
}

TEST_CASE("every plan can be executed: operands fit their kinds and nothing is read before it is written") {
  const unsigned seed = GENERATE(range(0u, 200u));
  const std::vector<std::string> violations = check(make_plan(test::random_scenario(seed)));
  CAPTURE(seed);
  CHECK(violations == std::vector<std::string>{});
}

// Whether the first violation says so.
bool finds(const Plan& plan, const std::string& words) {
  const std::vector<std::string> violations = check(plan);
  return !violations.empty() && violations.front().find(words) != std::string::npos;
}

TEST_CASE("the first micro-batch writes the gradients of products, which others add to and nothing zeroes") {
  const auto moved = [](const Scenario& s, std::string_view what) {
    double bytes = 0;
    for (const Row& row : predict(s).rows)
      if (row.id.ends_with(what)) bytes += static_cast<double>(row.memory.value);
    return bytes;
  };
  for (const int data_parallel : {1, 2})
    for (const std::int64_t micro_batches : {1, 2, 5}) {
      CAPTURE(data_parallel, micro_batches);
      Scenario writes = test::training(test::gpt2_124m(), 16);
      writes.strategy.data_parallel = data_parallel;
      writes.workload.global_batch_size = writes.workload.micro_batch_size * micro_batches * data_parallel;
      Scenario adds = writes;
      adds.implementation.runs_here = false;
      double written = 0;  // bytes of what products make, the embedding's as the head's
      for (const Buffer& b : make_plan(writes).buffers) {
        const std::string_view name = b.name;
        const bool of_product =
            name.find("norm") == std::string_view::npos && name != "gradient.position_embedding.weight";
        if (b.buffer_class == BufferClass::gradient && of_product)
          written += static_cast<double>(b.bytes({}).value) * (b.per_layer ? 12 : 1);
      }
      REQUIRE(written > 0);
      CHECK(moved(writes, "zero_gradients") == Approx(moved(adds, "zero_gradients") - written));
      CHECK(moved(writes, "backward_weight") == Approx(moved(adds, "backward_weight") - written));
    }
}

TEST_CASE("under every strategy each gradient of a product is begun once, and then added to") {
  const unsigned seed = GENERATE(range(0u, 400u));
  CAPTURE(seed);
  const Plan plan = make_plan(test::random_parallel_scenario(seed));
  std::size_t begun_by_products = 0;
  for (const Program& program : plan.programs) {
    std::set<std::tuple<BufferId, std::int32_t, std::int32_t>> begun;
    for (const Action& a : program.actions)
      for (const Operation& op : plan.blocks[static_cast<std::size_t>(a.block)].operations) {
        const bool zeroes = op.kind == OpKind::zero, makes = is_backward(op.kind);
        if (!zeroes && !makes) continue;
        for (const Operand& o : op.operands) {
          const Buffer* const b = plan.buffer(o);
          if (!b || b->buffer_class != BufferClass::gradient || o.access == Access::read) continue;
          const auto instance =
              std::make_tuple(plan.storage(o.buffer), b->per_layer ? a.layer + o.layer_offset : 0,
                              b->per_micro_batch ? a.micro_batch : 0);
          const bool begins = access_of(o, a.variables) == Access::write;
          INFO(program.role << ", " << op.id << " of layer " << a.layer << ", micro-batch " << a.micro_batch
                            << ": " << b->name);
          if (begun.contains(instance) == begins) FAIL_CHECK();
          begun.insert(instance);
          begun_by_products += begins && makes;
        }
      }
  }
  CHECK(begun_by_products > 0);
}

TEST_CASE("the checker finds what is wrong") {
  Plan plan = make_plan(test::training(test::gpt2_124m(), 16));
  const auto block = [&](const std::string& name) -> Block& {
    return *std::find_if(plan.blocks.begin(), plan.blocks.end(),
                         [&](const Block& b) { return b.name == name; });
  };
  REQUIRE(check(plan).empty());
  SECTION("a result that nobody computed") {
    auto& ops = block("layer.forward").operations;
    std::erase_if(ops, [](const Operation& op) { return op.id == "layer.mlp.gelu.forward"; });
    CHECK(finds(plan, "layer.mlp.down.forward reads layer.mlp.activation before"));
  }
  SECTION("a gradient that was never set to zero") {
    for (Block& b : plan.blocks)
      std::erase_if(b.operations, [](const Operation& op) { return op.id == "optimizer.zero_gradients"; });
    CHECK(finds(plan, "gradient.final_norm.weight before it is written"));
  }
  SECTION("a shape that does not fit") {
    plan.buffers[plan.find("layer.attention.qkv.weight")].shape[0] = 7;
    CHECK(finds(plan, "layer.attention.qkv.weight has 5376 elements, not 1769472"));
  }
  SECTION("scratch in two blocks") {
    block("head.forward").operations[0].operands[0].buffer =
        plan.find("layer.backward.layer.mlp_norm.gradient");
    CHECK(finds(plan, "belongs to another block"));
  }
  SECTION("an id twice") {
    auto& ops = block("layer.forward").operations;
    ops.push_back(ops.front());
    CHECK(finds(plan, "the id occurs twice"));
  }
}

TEST_CASE("a plan's parameters are the model's") {
  CHECK(parameters(make_plan(test::training(test::gpt2_124m(), 8))) == 124'439'808);
  CHECK(parameters(make_plan(test::training(test::llama_8b(), 8))) == 8'030'261'248);
  CHECK(parameters(make_plan(test::generation(test::llama_405b(), 8, 2))) == 405'853'388'800);
  const unsigned seed = GENERATE(range(0u, 30u));
  const Scenario s = test::random_scenario(seed);
  CHECK(parameters(make_plan(s)) == count_parameters(s.model).total);
}

TEST_CASE("full recompute runs each layer forward exactly once more, selective its attention core alone") {
  Scenario s = test::training(test::llama_8b(), 64, 1, 3);
  s.strategy.recompute = GENERATE(Recompute::none, Recompute::selective, Recompute::full);
  const Plan plan = make_plan(s);
  const Block& forward = *std::find_if(plan.blocks.begin(), plan.blocks.end(),
                                       [](const Block& b) { return b.name == "layer.forward"; });
  for (const Operation& op : forward.operations) {
    CHECK(count(plan, op.id, Phase::forward) == 32 * 3);
    const bool again =
        s.strategy.recompute == Recompute::full ||
        (s.strategy.recompute == Recompute::selective && op.id == "layer.attention.flash.forward");
    CHECK(count(plan, op.id, Phase::recompute) == (again ? 32 * 3 : 0));
  }
}

TEST_CASE("the optimizer updates every parameter once a step, and decays the matrices") {
  const Plan plan = make_plan(test::training(test::gpt2_124m(), 16, 2, 8));
  std::set<std::pair<BufferId, int>> updated;
  for (const Action& a : plan.programs.front().actions)
    for (const Operation& op : plan.blocks[a.block].operations)
      if (op.kind == OpKind::adamw)
        for (std::size_t i = 1; i < op.operands.size(); i += 5) {
          const BufferId p = op.operands[i].buffer;
          CHECK(updated.emplace(p, plan.buffers[p].per_layer ? a.layer : 0).second);
          CHECK(op.decay == (plan.buffers[p].shape.size() == 2));
          for (std::size_t state = i + 1; state < i + 4; ++state)
            CHECK(plan.buffers[op.operands[state].buffer].parameter == p);
        }
  const auto tensors = [&] {
    std::size_t n = 0;
    for (const Buffer& b : plan.buffers)
      if (b.buffer_class == BufferClass::parameter) n += b.per_layer ? 12 : 1;
    return n;
  };
  CHECK(updated.size() == tensors());
}

TEST_CASE("with a tied head the embedding's gradient takes both parts") {
  const Plan plan = make_plan(test::training(test::gpt2_124m(), 16));
  CHECK(plan.find("head.weight") == kNoBuffer);
  const BufferId gradient = plan.find("gradient.embedding.weight");
  std::vector<std::string> writers;
  for (const Block& b : plan.blocks)
    for (const Operation& op : b.operations)
      if (op.operands[0].buffer == gradient && op.operands[0].access != Access::read)
        writers.push_back(op.id);
  CHECK(writers == std::vector<std::string>{"head.logits.backward_weight", "embedding.backward"});
}

TEST_CASE("training pads embedding, head and logits to the vocabulary's multiple, generation does not") {
  Scenario s = test::training(test::gpt2_124m(), 16);
  s.implementation.vocabulary_multiple = 128;
  const Plan plan = make_plan(s);
  REQUIRE(check(plan) == std::vector<std::string>{});
  for (const char* const name :
       {"embedding.weight", "gradient.embedding.weight", "moment1.embedding.weight"}) {
    CAPTURE(name);
    CHECK(plan.buffers[static_cast<std::size_t>(plan.find(name))].shape.front() == 50304);  // 393 * 128
  }
  CHECK(plan.buffers[static_cast<std::size_t>(plan.find("logits"))].shape.back() == 50304);
  int losses = 0;
  for (const Block& b : plan.blocks)
    for (const Operation& op : b.operations) {
      if (op.kind != OpKind::cross_entropy) continue;
      ++losses;
      CHECK(op.dims.vocab == 50304);
      CHECK(op.dims.words == 50257);
    }
  CHECK(losses == 1);
  // A rank's own part is padded: 25,129 words, then 50,304 / 2 rows.
  s.strategy.tensor_parallel = 2;
  CHECK(held_vocabulary(s) == 25216);
  s.workload.task = Task::generate;
  CHECK(held_vocabulary(s) == 25129);
}

TEST_CASE("a head in n chunks has the FLOPs of one, and moves its weight and their gradient n times") {
  Scenario s = test::training(test::llama_8b(), 64, 2, 4);
  s.model.tie_word_embeddings = GENERATE(true, false);
  const auto head_work = [&](int chunks) {
    s.implementation.head_chunks = chunks;
    const Plan plan = make_plan(s);
    REQUIRE(check(plan) == std::vector<std::string>{});
    Work sum;
    std::int64_t operations = 0;
    for (const Action& a : plan.programs.front().actions)
      for (const Operation& op : plan.blocks[a.block].operations) {
        if (!op.id.starts_with("head.") || a.micro_batch != 0) continue;
        const Work work = work_of(plan, op, a.variables);
        sum.flops += work.flops;
        sum.model_flops += work.model_flops;
        sum.read += work.read;
        sum.written += work.written;
        ++operations;
      }
    return std::pair{sum, operations};
  };
  const auto [whole, operations] = head_work(1);
  const std::int64_t weight =
      s.model.vocab_size * s.model.hidden_size * 2;  // bytes; as many its gradient has
  for (const int chunks : {2, 8}) {
    const auto [parts, operations_of_parts] = head_work(chunks);
    CHECK(parts.flops.value == Approx(whole.flops.value).epsilon(1e-12));
    CHECK(parts.model_flops.value == Approx(whole.model_flops.value).epsilon(1e-12));
    CHECK((parts.read - whole.read).value == (chunks - 1) * 3 * weight);
    CHECK((parts.written - whole.written).value == (chunks - 1) * weight);
    CHECK(operations_of_parts == chunks * operations);
  }
}

TEST_CASE("generation has a section for each token, without a KV cache each is the whole sequence again") {
  const bool kv_cache = GENERATE(true, false);
  const Plan plan = make_plan(test::generation(test::llama_8b(), 100, 5, kv_cache));
  const Program& program = plan.programs.front();
  REQUIRE(program.sections.size() == 5);
  CHECK(program.sections[0].name == "prefill");
  CHECK(program.sections[4].name == "token 4");
  for (std::size_t t = 0; t < 5; ++t) {
    const Action& first = program.actions[program.sections[t].begin];
    CHECK(first.phase == (t == 0 ? Phase::prefill : Phase::decode));
    CHECK(first.variables.kv_length == 100 + static_cast<std::int64_t>(t));
    CHECK(first.variables.query_length == (t == 0 ? 100 : kv_cache ? 1 : first.variables.kv_length));
  }
}

TEST_CASE(
    "stages of a generation run each layer once a token, one stage after the other, and hear each token") {
  Scenario s = test::generation(test::llama_8b(), 100, 5, true);
  s.hardware.node_link = gb_per_s(100);
  s.hardware.devices_per_node = 8;
  s.strategy.pipeline_parallel = GENERATE(2, 3, 5);
  const Plan plan = make_plan(s);
  CHECK(check(plan).empty());
  REQUIRE(std::ssize(plan.programs) == s.strategy.pipeline_parallel);
  for (std::size_t token = 0; token < 5; ++token) {
    std::vector<std::int32_t> layers;
    int sampled = 0, heard = 0;
    for (const Program& program : plan.programs) {
      REQUIRE(program.sections.size() == 5);
      const Section& section = program.sections[token];
      for (std::size_t a = section.begin; a < section.end; ++a) {
        const Action& action = program.actions[a];
        const Block& block = plan.blocks[static_cast<std::size_t>(action.block)];
        if (block.role == BlockRole::layer) layers.push_back(action.layer);
        if (block.role == BlockRole::head) ++sampled;
        if (block.name == "pipeline.tokens.receive") ++heard;
      }
    }
    CHECK(std::is_sorted(layers.begin(), layers.end()));
    CHECK(std::ssize(layers) == s.model.num_hidden_layers);
    CHECK(sampled == 1);
    CHECK(heard == s.strategy.pipeline_parallel - 1);
  }
  // One after the other: no token is there sooner than its layers, and its messages, take in turn.
  const Report staged = predict(plan, s.hardware, nullptr);
  s.strategy.pipeline_parallel = 1;
  const Report alone = predict(make_plan(s), s.hardware, nullptr);
  CHECK(staged.step_time > alone.step_time);
}

TEST_CASE("a scenario that cannot be is refused with the field that says so") {
  Scenario s = test::training(test::gpt2_124m(), 16);
  s.workload.global_batch_size = 0;
  CHECK_THROWS_WITH(make_plan(s), validate(s).front().field + ": " + validate(s).front().message);
  CHECK(validate(s).front().field == "workload.global_batch_size");
}

}  // namespace
