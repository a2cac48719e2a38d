#include "sim/cost/gpu_calibration.h"

#include <cmath>
#include <fstream>
#include <random>
#include <vector>

#include "sim/cost/calibration_preset.h"
#include "sim/cost/network.h"
#include "sim/cost/predict.h"
#include "sim/scenario/preset.h"
#include "tests/sim/random_scenario.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using sim::CollectiveOperation;
using sim::DType;
using sim::GpuCalibration;
using sim::Hardware;
using sim::MeasuredKernel;
using sim::RatioGrid;

namespace {

struct Gpu {
  Hardware hardware;
  GpuCalibration tables;
};

Gpu gpu(const std::string& name) {
  auto tables = sim::load_gpu_calibration(name);
  REQUIRE(tables.has_value());
  return {sim::load_hardware_preset(name), std::move(*tables)};
}

double seconds(const std::optional<sim::MeasuredTime>& time) {
  REQUIRE(time.has_value());
  return time->seconds.value;
}

bool inside(const std::optional<sim::MeasuredTime>& time, double measured) {
  REQUIRE(time.has_value());
  return time->low.value <= measured && measured <= time->high.value;
}

const std::vector<std::string> kWithProducts{"a100-sxm-80gb", "h100-sxm", "h200-sxm"};

}  // namespace

TEST_CASE("a grid gives its values at its nodes, and holds them beyond its edges") {
  const RatioGrid grid({{"a", {1, 4}}, {"b", {2, 8, 32}}}, {0, 1, 2, 10, 11, 12});
  CHECK(grid.at({1, 2}).log_ratio == 0);
  CHECK(grid.at({4, 8}).log_ratio == 11);
  CHECK(grid.at({4, 8}).on_node);
  CHECK(grid.at({100, 1000}).log_ratio == 12);
  CHECK_FALSE(grid.at({100, 32}).inside);
  CHECK(grid.at({1, 4}).log_ratio == Approx(0.5));  // half way in logarithms
  CHECK_FALSE(grid.at({1, 4}).on_node);
  CHECK(grid.at({1, 4}).inside);
}

TEST_CASE("a grid of values that are linear in the logarithms gives them everywhere inside") {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> unit(0, 1), slope(-2, 2);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<RatioGrid::Axis> axes(3);
    for (RatioGrid::Axis& axis : axes) {
      double at = 0.5 + unit(random);
      for (int i = 0; i < 4; ++i) axis.values.push_back(at *= 1.2 + 3 * unit(random));
    }
    const double sa = slope(random), sb = slope(random), sc = slope(random);
    const auto line = [&](double a, double b, double c) {
      return sa * std::log(a) + sb * std::log(b) + sc * std::log(c);
    };
    std::vector<float> values;
    for (const double a : axes[0].values)
      for (const double b : axes[1].values)
        for (const double c : axes[2].values) values.push_back(static_cast<float>(line(a, b, c)));
    const RatioGrid grid(axes, values);
    RatioGrid::Point p{};
    for (std::size_t i = 0; i < 3; ++i)
      p[i] = axes[i].values.front() * std::pow(axes[i].values.back() / axes[i].values.front(), unit(random));
    // Values are kept in single precision.
    CHECK(grid.at(p).log_ratio == Approx(line(p[0], p[1], p[2])).margin(1e-5));
  }
}

TEST_CASE("a grid whose axes do not increase, or do not fit its values, is refused") {
  CHECK_THROWS_WITH(RatioGrid({{"m", {4, 4}}}, {0, 0}), contains("\"m\" must increase"));
  CHECK_THROWS_WITH(RatioGrid({{"m", {0, 4}}}, {0, 0}), contains("above 0"));
  CHECK_THROWS_WITH(RatioGrid({{"m", {1, 4}}}, {0, 0, 0}), contains("2 nodes, but there are 3"));
  CHECK_THROWS_WITH(RatioGrid({}, {}), contains("1 to 3 axes"));
}

TEST_CASE("every calibration that ships loads, and belongs to a hardware preset") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(sim::preset_directory() / "calibrations")) {
    if (entry.path().extension() != ".json") continue;
    const std::string name = entry.path().stem().string();
    CAPTURE(name);
    const auto calibration = sim::load_calibration_preset(name);
    REQUIRE(calibration.has_value());
    CHECK(calibration->hardware.name == name);
    ++files;
  }
  CHECK(files >= 4);
  CHECK_FALSE(sim::load_calibration_preset("rtx-4090").has_value());
}

TEST_CASE("a calibration file that is wrong is refused by field") {
  const TemporaryFolder folder;
  const auto refuses = [&](const std::string& content, const std::string& what) {
    folder.write("calibrations/broken.json", content);
    setenv("RIDGEPOINT_PRESETS", folder.path().c_str(), 1);
    CHECK_THROWS_WITH(sim::load_gpu_calibration("broken"), contains(what) && contains("broken.json"));
    unsetenv("RIDGEPOINT_PRESETS");
  };
  const std::string head = R"({"hardware": "broken", "source": "s", "launch_us": 2, "collectives": [], )";
  const std::string table = R"("kernel": "matmul", "software": "x", "dtype": "bf16", "source": "s",
    "bands": [{"low": -0.1, "high": 0.1}], "axes": {"n": [1, 2], "k": [1], "m": [1, 2]}, )";
  refuses(head + R"("kernels": [{)" + table + R"("log_ratio_steps": [[0, 1, 2], [0, 1]]}]})",
          "kernels[0].log_ratio_steps");
  refuses(head + R"("kernels": [{)" + table + R"("log_ratio_steps": [[0, 1]]}]})",
          "4 nodes, but there are 2");
  refuses(head + R"("kernels": [{)" + table + R"("log_ratio_steps": [[0, 1], [0, 1]], "colour": 1}]})",
          "colour");
  refuses(R"({"hardware": "broken", "source": "s", "kernels_of": "broken", "collectives": []})",
          "kernels_of");
  refuses("{", "not valid JSON");
}

TEST_CASE("products take no less time than the highest clock allows") {
  // H100 runs bursts at 1980 MHz where its datasheet's peak is that of 1830 MHz; A100's is that of its
  // highest.
  std::mt19937 random(2);
  std::uniform_real_distribution<double> exponent(0, 17);
  for (const std::string& name : kWithProducts) {
    const Gpu g = gpu(name);
    const double boost = name == "a100-sxm-80gb" ? 1.0 : 1980.0 / 1830.0;
    for (int i = 0; i < 2000; ++i) {
      const auto size = [&] { return std::floor(std::exp2(exponent(random))); };
      const sim::ProductShape shape{size(), size(), size(), DType::bf16};
      CAPTURE(name, shape.m, shape.n, shape.k);
      const double flops = 2 * shape.m * shape.n * shape.k;
      CHECK(seconds(sim::product_time(g.tables, g.hardware, shape)) >=
            flops / (boost * g.hardware.peak_for(DType::bf16).value));
    }
  }
}

TEST_CASE("no kernel gets faster when a peak, the bandwidth or a link falls") {
  const Gpu g = gpu("h100-sxm");
  Hardware slower = g.hardware;
  for (auto& [dtype, peak] : slower.peak) peak = peak * 0.7;
  slower.memory_bandwidth = slower.memory_bandwidth * 0.6;
  slower.network_link = slower.network_link * 0.5;
  std::mt19937 random(3);
  std::uniform_int_distribution<int> power(0, 14);
  for (int i = 0; i < 500; ++i) {
    const auto size = [&] { return std::exp2(power(random)); };
    const sim::ProductShape product{size(), size(), size(), DType::bf16};
    CHECK(seconds(sim::product_time(g.tables, slower, product)) >=
          seconds(sim::product_time(g.tables, g.hardware, product)));
    const double heads = size();
    const sim::AttentionShape attention{.batch = size(),
                                        .heads = heads,
                                        .kv_heads = heads,
                                        .head_dim = 128,
                                        .query_length = 1,
                                        .kv_length = size(),
                                        .causal = false,
                                        .dtype = DType::bf16};
    CHECK(seconds(sim::attention_time(g.tables, slower, MeasuredKernel::attention_decode, attention)) >=
          seconds(sim::attention_time(g.tables, g.hardware, MeasuredKernel::attention_decode, attention)));
    const sim::CollectiveShape collective{CollectiveOperation::all_reduce, 1024 * size(), 64, 8};
    CHECK(seconds(sim::collective_time(g.tables, slower, collective)) >=
          seconds(sim::collective_time(g.tables, g.hardware, collective)));
  }
}

TEST_CASE("large messages take longer the larger they are, and small ones longer the more ranks there are") {
  for (const std::string name : {"a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200-sxm"}) {
    const Gpu g = gpu(name);
    for (const auto operation : {CollectiveOperation::all_reduce, CollectiveOperation::all_gather,
                                 CollectiveOperation::reduce_scatter}) {
      const auto time = [&](double bytes, int ranks) {
        return seconds(sim::collective_time(g.tables, g.hardware, {operation, bytes, ranks, ranks}));
      };
      for (const int ranks : {2, 4, 8})
        for (double bytes = 8 << 20; bytes < 2e9; bytes *= 2) {
          CAPTURE(name, sim::name(operation), ranks, bytes);
          CHECK(time(2 * bytes, ranks) > time(bytes, ranks));
        }
      CAPTURE(name, sim::name(operation));
      CHECK(time(4096, 4) > time(4096, 2));
      CHECK(time(4096, 8) > time(4096, 4));
    }
  }
}

TEST_CASE("a group that spans more nodes takes longer, and no less than its adapters allow") {
  const Gpu g = gpu("h100-sxm");
  for (const auto operation : {CollectiveOperation::all_reduce, CollectiveOperation::all_gather,
                               CollectiveOperation::reduce_scatter, CollectiveOperation::all_to_all})
    for (double bytes = 1024; bytes < 1e10; bytes *= 4) {
      double before = 0;
      for (const int nodes : {4, 8, 16, 64, 256}) {
        const sim::CollectiveShape shape{operation, bytes, 8 * nodes, 8};
        const double t = sim::collective_by_formula(g.hardware, sim::gb_per_s(370), shape).value;
        CAPTURE(sim::name(operation), bytes, nodes);
        CHECK(t > before);
        // What leaves a node must pass its eight adapters once.
        CHECK(t * 8 * g.hardware.network_link.value >= bytes * (nodes - 1.0) / nodes);
        before = t;
      }
    }
}

TEST_CASE("NCCL's published times lie in the 90 % bands of the curves") {
  // github.com/ai-dynamo/aiconfigurator, eight GPUs behind NVLink switches, fp16.
  struct Anchor {
    const char* gpu;
    const char* software;
    CollectiveOperation operation;
    double bytes, us;
  };
  constexpr double kKiB = 1024, kMiB = 1024 * 1024;
  using Op = CollectiveOperation;
  const std::vector<Anchor> anchors{
      {"a100-sxm-80gb", "NCCL 2.27.3", Op::all_reduce, 8 * kKiB, 21.3},
      {"a100-sxm-80gb", "NCCL 2.27.3", Op::all_reduce, 512 * kKiB, 30},
      {"a100-sxm-80gb", "NCCL 2.27.3", Op::all_reduce, 8 * kMiB, 128},
      {"a100-sxm-80gb", "NCCL 2.27.3", Op::all_reduce, 128 * kMiB, 1169},
      {"a100-sxm-80gb", "NCCL 2.27.3", Op::all_reduce, 512 * kMiB, 4226},
      {"h100-sxm", "NCCL 2.29.2", Op::all_reduce, 8 * kKiB, 16.0},
      {"h100-sxm", "NCCL 2.29.2", Op::all_reduce, 512 * kKiB, 20.1},
      {"h100-sxm", "NCCL 2.29.2", Op::all_reduce, 8 * kMiB, 78.9},
      {"h100-sxm", "NCCL 2.29.2", Op::all_reduce, 128 * kMiB, 579},
      {"h100-sxm", "NCCL 2.29.2", Op::all_reduce, 512 * kMiB, 2111},
      {"h100-sxm", "NCCL 2.29.2", Op::all_gather, 512 * kMiB, 1402},
      {"h100-sxm", "NCCL 2.29.2", Op::reduce_scatter, 512 * kMiB, 1399},
      {"b200-sxm", "NCCL 2.29.2", Op::all_reduce, 8 * kKiB, 26},
      {"b200-sxm", "NCCL 2.29.2", Op::all_reduce, 8 * kMiB, 71.6},
      {"b200-sxm", "NCCL 2.29.2", Op::all_reduce, 512 * kMiB, 1335},
  };
  int hits = 0;
  for (const Anchor& a : anchors) {
    const Gpu g = gpu(a.gpu);
    hits += inside(sim::collective_time(g.tables, g.hardware, {a.operation, a.bytes, 8, 8}, a.software),
                   a.us * 1e-6);
  }
  CHECK(hits >= 0.85 * static_cast<double>(anchors.size()));
}

TEST_CASE("products measured elsewhere lie in the band of other software") {
  // S. Bekman, ml-engineering, compute/accelerator: best shapes of mamf-finder, by torch.mm.
  const Gpu a100 = gpu("a100-sxm-80gb"), h100 = gpu("h100-sxm");
  const auto at = [](double m, double n, double k, double tflops) { return 2 * m * n * k / (tflops * 1e12); };
  const std::string torch = "torch.mm (cuBLAS)";
  CHECK(inside(sim::product_time(a100.tables, a100.hardware, {1024, 10240, 5120, DType::bf16}, torch),
               at(1024, 10240, 5120, 271.2)));
  CHECK(inside(sim::product_time(h100.tables, h100.hardware, {2048, 2048, 13312, DType::bf16}, torch),
               at(2048, 2048, 13312, 794.5)));
  CHECK(inside(sim::product_time(h100.tables, h100.hardware, {1024, 9216, 14336, DType::fp8}, torch),
               at(1024, 9216, 14336, 1402.6)));
}

TEST_CASE("software that no table names is known less well than that which one does") {
  const Gpu g = gpu("h100-sxm");
  const sim::ProductShape shape{4096, 4096, 4096, DType::bf16};
  const auto named = sim::product_time(g.tables, g.hardware, shape, "TRTLLM 1.3.0rc10");
  const auto build = sim::product_time(g.tables, g.hardware, shape, "TRTLLM 1.3.0rc10 (torch_flow)");
  const auto other = sim::product_time(g.tables, g.hardware, shape, "somebody's kernels");
  REQUIRE((named && build && other));
  CHECK(named->fit == sim::Fit::measured_shape);
  CHECK(build->high == named->high);
  CHECK(other->fit == sim::Fit::other_software);
  CHECK(other->high > named->high);
  CHECK(other->low < named->low);
}

TEST_CASE("doubtful measurements speak for nobody but those who name them") {
  const Gpu g = gpu("a100-sxm-80gb");
  const sim::AttentionShape grouped{.batch = 32,
                                    .heads = 64,
                                    .kv_heads = 8,
                                    .head_dim = 128,
                                    .query_length = 1,
                                    .kv_length = 8192,
                                    .causal = false,
                                    .dtype = DType::bf16};
  const double cache = 4.0 * 32 * 8 * 8192 * 128;
  const auto named =
      sim::attention_time(g.tables, g.hardware, MeasuredKernel::attention_decode, grouped, "TRTLLM 1.0.0");
  const auto meant = sim::attention_time(g.tables, g.hardware, MeasuredKernel::attention_decode, grouped);
  CHECK(cache / seconds(named) > g.hardware.memory_bandwidth.value);  // why they are doubted
  CHECK(cache / seconds(meant) < g.hardware.memory_bandwidth.value);
}

TEST_CASE("a plan on a GPU with tables is priced by them, forward and backward products alike") {
  const auto calibration = sim::load_calibration_preset("h100-sxm");
  REQUIRE(calibration.has_value());
  const sim::Scenario scenario = sim::load_scenario_preset("train-llama-3.1-8b-h100");
  const sim::Report report = sim::predict(scenario, &*calibration);
  int products = 0;
  for (const sim::Row& row : report.rows) {
    const bool product = row.kind == sim::OpKind::matmul || row.kind == sim::OpKind::matmul_backward_input ||
                         row.kind == sim::OpKind::matmul_backward_weight;
    if (!product) continue;
    ++products;
    CAPTURE(row.id);
    CHECK(row.provenance != sim::Provenance::datasheet);
    CHECK(row.low < row.duration);
    CHECK(row.duration < row.high);
  }
  CHECK(products > 0);
}

namespace {

sim::Scenario two_tokens_of_llama(std::optional<DType> weights) {
  sim::Scenario scenario;
  scenario.model = sim::load_model_preset("llama-3.1-8b");
  scenario.hardware = sim::load_hardware_preset("h100-sxm");
  scenario.implementation = sim::load_implementation_preset("ridgepoint");
  scenario.workload.task = sim::Task::generate;
  scenario.workload.dtype = DType::bf16;
  scenario.workload.weights_dtype = weights;
  scenario.workload.max_new_tokens = 2;
  return scenario;
}

}  // namespace

TEST_CASE(
    "decoding reads narrower weights in less time, by their bytes at most, and a long prompt expands them") {
  const auto calibration = sim::load_calibration_preset("h100-sxm");
  REQUIRE(calibration.has_value());
  const auto products = [&](std::optional<DType> weights, std::int64_t prompt) {
    sim::Scenario scenario = two_tokens_of_llama(weights);
    scenario.workload.prompt_length = prompt;
    sim::Seconds prefill, decode;
    for (const sim::Row& row : sim::predict(scenario, &*calibration).rows)
      if (row.kind == sim::OpKind::matmul && row.id.starts_with("layer."))
        (row.phase == sim::Phase::decode ? decode : prefill) += row.duration;
    return std::pair{prefill.value, decode.value};
  };
  const auto [prefill, decode] = products(std::nullopt, 8192);
  const auto [prefill8, decode8] = products(DType::int8, 8192);
  const auto [prefill4, decode4] = products(DType::int4, 8192);
  CHECK(decode8 < decode);
  CHECK(decode4 < decode8);
  CHECK(decode8 > decode / 2);  // launches and activations do not shrink
  CHECK(decode4 > decode / 4);
  // Own kernels expand weights in a pass before products of many rows.
  CHECK(prefill8 > prefill);
  CHECK(prefill8 < 1.1 * prefill);
  CHECK(prefill4 > prefill);
  CHECK(prefill4 < prefill8);
}

TEST_CASE("decoding up to 64 sequences reads weights in 8 and 4 bits as they are stored, more expand them") {
  const auto products = [&](DType weights, std::int64_t sequences) {
    sim::Scenario scenario = two_tokens_of_llama(weights);
    scenario.workload.batch_size = sequences;
    scenario.workload.prompt_length = 64;
    double bytes = 0;
    for (const sim::Row& row : sim::predict(scenario).rows)
      if (row.kind == sim::OpKind::matmul && row.id.starts_with("layer.") && row.phase == sim::Phase::decode)
        bytes += static_cast<double>(row.memory.value);
    return bytes;
  };
  for (const DType weights : {DType::int8, DType::int4}) {
    // Rows of activations are few beside weights.
    CHECK(products(weights, 64) < 1.2 * products(weights, 1));
    CHECK(products(weights, 65) > 4 * products(weights, 64));  // once as stored, twice in 16 bits
  }
}
