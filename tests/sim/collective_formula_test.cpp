// Collectives that nobody measured: one formula inside a node and across nodes, whoever asks.
#include "sim/cost/network.h"
#include "sim/cost/predict.h"
#include "sim/cost/price.h"
#include "sim/scenario/preset.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

Price priced(OpKind kind, double bytes, const Group& group, const Hardware& h) {
  Operation op{.id = "c", .kind = kind, .dtype = DType::bf16};
  op.group = 0;
  Work work;
  work.network = {std::llround(bytes * bus_factor(*info(kind).collective, group.size))};
  return price(work, op, {}, h, nullptr, &group);
}

TEST_CASE("without tables a collective takes what the formula says, in a node and across nodes") {
  const Hardware h = test::h100();
  for (const OpKind kind :
       {OpKind::all_reduce, OpKind::all_gather, OpKind::reduce_scatter, OpKind::all_to_all, OpKind::send})
    for (const std::int32_t ranks : {2, 8, 16, 64}) {
      if (kind == OpKind::send && ranks > 2) continue;
      for (const double bytes : {1e4, 1e6, 1e8, 1e10}) {
        const Group group{Axis::tensor, ranks, 1};
        const CollectiveShape shape{*info(kind).collective, bytes, ranks, std::min(ranks, 8)};
        const Seconds formula = collective_by_formula(h, h.node_link * 0.8, shape);
        CAPTURE(name(kind), ranks, bytes);
        CHECK(priced(kind, bytes, group, h).seconds.value == Approx(formula.value).epsilon(1e-3));
      }
    }
}

TEST_CASE(
    "a collective takes longer with more ranks, more bytes and slower links, and never less than its bytes") {
  const Hardware h = test::h100();
  Hardware slow = h;
  slow.node_link = h.node_link * 0.5;
  for (const OpKind kind :
       {OpKind::all_reduce, OpKind::all_gather, OpKind::reduce_scatter, OpKind::all_to_all})
    for (const double bytes : {1e3, 1e5, 1e7, 1e9}) {
      CAPTURE(name(kind), bytes);
      double before = 0;
      for (const std::int32_t ranks : {2, 4, 8}) {
        const Group group{Axis::tensor, ranks, 1};
        const double t = priced(kind, bytes, group, h).seconds.value;
        CHECK(t > before);
        CHECK(priced(kind, 4 * bytes, group, h).seconds.value > t);
        CHECK(priced(kind, bytes, group, slow).seconds.value > t);
        CHECK(t > bus_factor(*info(kind).collective, ranks) * bytes / h.node_link.value);
        before = t;
      }
    }
}

TEST_CASE(
    "a node that holds the whole job is a node: more places in it change no step, tied stages included") {
  Scenario s;
  s.model = load_model_preset("llama-3.2-1b");
  s.hardware = load_hardware_preset("h100-sxm");
  REQUIRE(s.model.tie_word_embeddings);
  s.strategy.tensor_parallel = 2;
  s.strategy.pipeline_parallel = 4;
  s.workload.seq_len = 4096;
  s.workload.global_batch_size = 8;
  REQUIRE(s.hardware.devices_per_node == 8);
  const Seconds whole = predict_step(make_plan(s), s.hardware, nullptr).seconds;
  s.hardware.devices_per_node = 16;
  CHECK(predict_step(make_plan(s), s.hardware, nullptr).seconds.value == Approx(whole.value));
  s.hardware.devices_per_node = 4;
  CHECK(predict_step(make_plan(s), s.hardware, nullptr).seconds > whole);
}

}  // namespace
