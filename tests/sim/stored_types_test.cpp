// In which types a plan of generation stores the weights of each product in each layer, with experts, shared
// experts and latent attention; and what that costs.
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "sim/cost/predict.h"
#include "sim/plan/builder.h"
#include "sim/plan/programs.h"
#include "sim/report/metrics.h"
#include "sim/scenario/layer_list.h"
#include "sim/scenario/preset.h"
#include "tests/sim/check_plan.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

// The products of a layer whose weights may have types of their own, and whose they are.
struct Named {
  std::string id;
  LayerProduct product;
  bool of_experts = false;
};
const std::vector<Named> kNamed{{"layer.attention.qkv.forward", LayerProduct::qkv},
                                {"layer.attention.output.forward", LayerProduct::output},
                                {"layer.mlp.gate_up.forward", LayerProduct::up},
                                {"layer.mlp.down.forward", LayerProduct::down},
                                {"layer.experts.gate_up.forward", LayerProduct::up, true},
                                {"layer.experts.down.forward", LayerProduct::down, true},
                                {"layer.shared_expert.gate_up.forward", LayerProduct::up},
                                {"layer.shared_expert.down.forward", LayerProduct::down}};

// As the help of the fields says it.
DType expected(const Workload& w, const Named& named, bool is_listed) {
  const std::optional<DType> common =
      named.of_experts && w.expert_weights_dtype ? w.expert_weights_dtype : w.weights_dtype;
  const std::optional<DType> own = w.*own_type(named.product);
  return common && own && is_listed ? *own : common.value_or(w.dtype);
}

}  // namespace

TEST_CASE("each product's weight is stored in the type that the fields say of it, in each layer") {
  const std::string preset =
      GENERATE("llama-3.1-8b", "mixtral-8x7b", "qwen1.5-moe-a2.7b", "deepseek-v2-lite");
  std::mt19937 random(7);
  const auto any_type = [&]() -> std::optional<DType> {
    constexpr DType kTypes[] = {DType::int8, DType::int4, DType::q4_k, DType::q6_k};
    return random() % 3 == 0 ? std::nullopt : std::optional(kTypes[random() % std::size(kTypes)]);
  };
  std::size_t own_of_experts = 0;
  for (int i = 0; i < 40; ++i) {
    Scenario s = test::generation(load_model_preset(preset), 128, 4);
    s.implementation = test::ridgepoint();
    Workload& w = s.workload;
    w.weights_group = 32;
    for (std::optional<DType> Workload::*type :
         {&Workload::weights_dtype, &Workload::expert_weights_dtype, &Workload::qkv_dtype,
          &Workload::output_dtype, &Workload::up_dtype, &Workload::down_dtype})
      w.*type = any_type();
    w.mixed_layers = i % 2 == 0 ? "" : "0-3,7,20-22";
    const std::vector<std::int64_t> listed = layers_listed(w.mixed_layers).value();
    const GenerationPlan generation = make_generation_blocks(s);
    const Plan& plan = generation.plan;
    std::size_t products = 0;
    for (std::size_t layer = 0; layer < generation.decode.size(); ++layer) {
      const bool is_listed =
          listed.empty() || std::ranges::count(listed, static_cast<std::int64_t>(layer)) > 0;
      for (const BlockId block : {generation.prefill[layer], generation.decode[layer]})
        for (const Operation& op : plan.block(block).operations)
          for (const Named& named : kNamed) {
            if (op.id != named.id) continue;
            const DType type = plan.buffer(operand(op, Role::weight))->dtype;
            CAPTURE(layer, op.id);
            CHECK(std::string(name(type)) == name(expected(w, named, is_listed)));
            CHECK(has(op, Role::weight_scales) == (bits(type) < 16));
            ++products;
            own_of_experts += named.of_experts && w.*own_type(named.product) == type;
          }
    }
    CHECK(products > generation.decode.size() * 4);
  }
  CHECK((own_of_experts > 0) == load_model_preset(preset).has_experts());
}

TEST_CASE("experts in int4 whose products all have int8 of their own cost what int8 without zeros costs") {
  for (const std::string model : {"mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v2-lite"})
    for (const std::string implementation : {"ridgepoint", "vllm_0.14"}) {
      CAPTURE(model, implementation);
      Scenario s = test::generation(load_model_preset(model), 128, 4);
      s.hardware = load_hardware_preset("h100-sxm");
      s.implementation = load_implementation_preset(implementation);
      Workload& w = s.workload;
      w.weights_group = 32;
      w.expert_weights_dtype = DType::int8;
      w.weights_zeros = false;
      const Report in_8 = predict(s);
      w.expert_weights_dtype = DType::int4;
      w.weights_zeros = true;
      const Report in_4 = predict(s);
      w.up_dtype = w.down_dtype = DType::int8;
      const Report named = predict(s);
      CHECK(named.step_time.value == Approx(in_8.step_time.value).epsilon(1e-12));
      CHECK(peak_memory(named) == peak_memory(in_8));
      const auto in_layers = [&](const std::string& layers) {
        w.mixed_layers = layers;
        return predict(s);
      };
      const std::string last = std::to_string(s.model.num_hidden_layers - 1);
      const Report all = in_layers("0-" + last), some = in_layers("1-3,9"), one = in_layers("7");
      CHECK(all.step_time.value == Approx(named.step_time.value).epsilon(1e-12));
      CHECK(peak_memory(all) == peak_memory(named));
      CHECK(some.step_time < all.step_time);
      CHECK(one.step_time < some.step_time);
      CHECK(in_4.step_time < one.step_time);
      CHECK(peak_memory(some) < peak_memory(all));
      CHECK(peak_memory(one) < peak_memory(some));
      CHECK(peak_memory(in_4) < peak_memory(one));
    }
}

TEST_CASE("a plan has buffers of a product's own type only where some layer has such a product") {
  Scenario s =
      test::generation(load_model_preset("deepseek-v2-lite"), 128, 4);  // its first layer has no experts
  s.implementation = test::ridgepoint();
  s.workload.weights_dtype = DType::int4;
  s.workload.down_dtype = DType::int8;
  const auto buffers_in_int8 = [&](const std::string& layers) {
    s.workload.mixed_layers = layers;
    std::vector<std::string> names;
    for (const Buffer& b : make_plan(s).buffers)
      if (b.dtype == DType::int8 && b.parameter == kNoBuffer) names.push_back(b.name);
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(buffers_in_int8("0") == Names{"mixed.layer.mlp.down.weight"});
  CHECK(buffers_in_int8("3-5") ==
        Names{"mixed.layer.experts.down.weight", "mixed.layer.shared_expert.down.weight"});
}

TEST_CASE("absorbed products read the codes and scales of an up-projection once, in every type") {
  for (const DType type : {DType::int8, DType::int4, DType::q4_k, DType::q6_k})
    for (const std::int64_t group : {0, 64}) {
      CAPTURE(std::string(name(type)), group);
      Scenario s = test::generation(load_model_preset("deepseek-v3"), 128, 4);
      s.implementation = test::ridgepoint();
      s.workload.weights_dtype = type;
      s.workload.weights_group = group;
      const GenerationPlan generation = make_generation_blocks(s);
      const Plan& plan = generation.plan;
      CHECK(check(make_plan(s)).empty());
      const BufferId whole = plan.find("layer.attention.kv_up.weight");
      std::int64_t stored = plan.buffer(whole).bytes({}).value, read = 0;
      for (const Buffer& b : plan.buffers)
        if (b.parameter == whole && b.view_of == kNoBuffer) stored += b.bytes({}).value;
      for (const Operation& op : plan.block(generation.decode.back()).operations) {
        if (op.place != Place::absorbs_keys && op.place != Place::absorbs_values) continue;
        CHECK(op.dims.scale_groups > 0);
        for (const Role role : {Role::weight, Role::weight_scales})
          read += plan.buffer(operand(op, role))->bytes({}).value;
      }
      CHECK(read == stored);
      CHECK(stored > plan.buffer(whole).bytes({}).value);
    }
}
