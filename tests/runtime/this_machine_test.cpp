#include "runtime/this_machine.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/threads.h"
#include "runtime/calibrate.h"
#include "runtime/cpu/kernel_table.h"
#include "runtime/gpu_calibration.h"
#include "runtime/machine_files.h"
#include "runtime/machine_pace.h"
#include "runtime/machine_probe.h"
#include "runtime/measured.h"
#include "runtime/measured_series.h"
#include "runtime/other_load.h"
#include "runtime/sample_kernels.h"
#include "runtime/sample_runs.h"
#include "runtime/short_run.h"
#include "runtime/thread_ranks.h"
#include "sim/cost/predict.h"
#include "sim/plan/programs.h"
#include "sim/report/metrics.h"
#include "tests/runtime/small_run.h"
#include "tests/support/cache_folder.h"
#include "tests/support/catch.h"

namespace {

sim::Calibration calibration() {
  sim::Calibration c;
  c.device = runtime::cpu_name();
  c.software = runtime::kernels_version();
  c.date = "2026-01-01T00:00:00Z";
  c.launch = sim::us(2);
  c.hardware = tests::scenario_of(tests::small_gpt()).hardware;
  c.hardware.launch = c.launch;
  return c;
}

void write_cache(const std::string& text) {
  std::ofstream(runtime::this_machine_file()) << text;
}

}  // namespace

TEST_CASE("The machine's calibration is cached below XDG_CACHE_HOME and read back") {
  const CacheFolder cache;
  CHECK(runtime::cache_directory() == cache.path() / "ridgepoint");
  CHECK_FALSE(runtime::cached_this_machine());
  write_cache(sim::to_json(calibration()));
  const auto cached = runtime::cached_this_machine();
  REQUIRE(cached);
  CHECK(cached->launch.value == Approx(2e-6));
}

TEST_CASE("Another machine's, another version's or a damaged calibration is not taken for this machine's") {
  const CacheFolder cache;
  sim::Calibration other = calibration();
  other.device = "Another CPU, 2 threads";
  write_cache(sim::to_json(other));
  CHECK_FALSE(runtime::cached_this_machine());
  other = calibration();
  other.software = "ridgepoint 0.0.0, cpu kernels fp32";
  write_cache(sim::to_json(other));
  CHECK_FALSE(runtime::cached_this_machine());
  write_cache(sim::to_json(calibration()).substr(0, 100));
  const std::filesystem::path file = runtime::this_machine_file();
  CHECK_FALSE(runtime::cached_this_machine());
  CHECK_FALSE(std::filesystem::exists(file));  // set aside
  CHECK(std::filesystem::file_size(file.string() + ".set-aside") == 100);
}

TEST_CASE("A calibration that the disk fails to give is neither set aside nor measured again") {
  const CacheFolder cache;
  const std::filesystem::path file = runtime::this_machine_file();
  std::filesystem::create_symlink("/proc/self/mem", file);  // opens; reading its first page is an I/O error
  CHECK_THROWS_AS(runtime::cached_this_machine(), std::system_error);
  CHECK_THROWS_AS(runtime::this_machine({}, {}), std::system_error);
  CHECK(std::filesystem::is_symlink(file));
}

TEST_CASE("A refit that the disk fails to give stays, one that is no refit is set aside") {
  const CacheFolder cache;
  const std::filesystem::path file = runtime::writable_cache_directory() / "refit-h100-sxm.json";
  CHECK_FALSE(runtime::cached_refit("h100-sxm"));
  std::filesystem::create_symlink("/proc/self/mem", file);  // opens; reading its first page is an I/O error
  CHECK_THROWS_AS(runtime::cached_refit("h100-sxm"), std::system_error);
  CHECK(std::filesystem::is_symlink(file));
  std::filesystem::remove(file);
  std::ofstream(file) << "{}";
  CHECK_FALSE(runtime::cached_refit("h100-sxm"));
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("Each number of threads has a calibration of its own") {
  const CacheFolder cache;
  const int all = kernels::cpu::threads();
  const std::filesystem::path of_all = runtime::this_machine_file();
  kernels::cpu::set_threads(all + 1);
  CHECK(runtime::this_machine_file() != of_all);
  CHECK_FALSE(runtime::cached_this_machine());
  kernels::cpu::set_threads(all);
}

TEST_CASE("What ranks were measured to be together is known by their number, and all of them take it") {
  const CacheFolder cache;
  const int threads = std::max(1, static_cast<int>(runtime::own_cpus().size()) / 2);
  sim::Calibration of_two = calibration();
  of_two.device = runtime::cpu_name(threads);
  of_two.software = runtime::ranks_version();
  of_two.hardware.devices_per_node = 2;
  of_two.collectives = {{sim::OpKind::all_reduce, 2, {1024}, sim::us(3)}};
  CHECK_FALSE(runtime::cached_machine_of_ranks(2));
  std::ofstream(runtime::writable_cache_directory() /
                ("this-machine-2-ranks-" + std::to_string(threads) + "-threads.json"))
      << sim::to_json(of_two);
  REQUIRE(runtime::cached_machine_of_ranks(2));
  CHECK_FALSE(runtime::cached_machine_of_ranks(3));
  CHECK_FALSE(runtime::cached_this_machine());
  std::array<std::size_t, 2> collectives{};
  runtime::run_thread_ranks(2, [&](runtime::Transport& transport) {
    runtime::Communicator communicator(transport);
    collectives[static_cast<std::size_t>(transport.rank())] =
        runtime::machine_of_ranks(communicator, threads, false, {}, {}).collectives.size();
  });
  CHECK(collectives == std::array<std::size_t, 2>{1, 1});
}

TEST_CASE(
    "A series' run of two ranks stands beside its prediction, and one of more ranks than there are is "
    "refused") {
  sim::Scenario scenario = tests::scenario_of(tests::small_llama());
  scenario.strategy.data_parallel = 2;
  scenario.workload.micro_batch_size = 1;
  scenario.workload.global_batch_size = 4;
  sim::Calibration of_two = calibration();
  of_two.hardware.is_cpu = true;
  of_two.hardware.devices_per_node = 2;
  of_two.hardware.node_link = sim::gb_per_s(1);
  std::array<runtime::SeriesRun, 2> runs;
  std::array<std::string, 2> refused;
  runtime::run_thread_ranks(2, [&](runtime::Transport& transport) {
    runtime::Communicator communicator(transport);
    const auto self = static_cast<std::size_t>(transport.rank());
    runtime::ShortRun like;
    like.among = &communicator;
    runs[self] = runtime::run_of_series(scenario, of_two, {1e-3}, {}, {}, like);
    sim::Scenario more = scenario;
    more.strategy.tensor_parallel = 2;
    refused[self] = runtime::run_of_series(more, of_two, {1e-3}, {}, {}, like).why_not;
  });
  CAPTURE(runs[0].why_not);
  REQUIRE(runs[0].why_not.empty());
  CHECK(sim::planned_memory(runs[0].measured) == sim::planned_memory(runs[0].predicted));
  CHECK(runs[0].measured.steps.size() >= 5);
  const runtime::SeriesErrors errors = runtime::errors_of({runs[0]});
  CHECK(errors.steps.errors.size() == 1);
  REQUIRE(errors.exposed.size() == 1);
  CHECK(std::abs(errors.exposed[0]) <= 1);
  REQUIRE(!runs[0].each_time.empty());
  CHECK(errors.repeats.size() == runs[0].each_time.size() - 1);
  CHECK(refused[0] == "it takes 4 ranks, and 2 run");
  CHECK(refused[1] == refused[0]);
}

TEST_CASE("Errors say how far the times of a repeated run are apart, whatever was predicted") {
  runtime::SeriesRun run;
  run.each_time = {2.0, 2.5, 2.0};
  const std::vector<double> repeats = runtime::errors_of({run, run}).repeats;
  REQUIRE(repeats.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(repeats[i] == Approx(i % 2 == 0 ? 0.25 : 0.2));
}

TEST_CASE("What an exchange takes beyond the rank that it took least is waiting, and not exposed") {
  const auto row = [](const char* id, std::int32_t rank, double seconds, std::int64_t bytes) {
    sim::Row r;
    r.id = id;
    r.rank = rank;
    r.kind = sim::OpKind::all_reduce;
    r.count = 1;
    r.duration = {seconds};
    r.network = {bytes};
    return r;
  };
  std::vector<sim::Row> rows{row("sum", 0, 5, 8), row("sum", 1, 2, 8), row("sum", 2, 1, 4),
                             row("one", 1, 3, 8)};
  runtime::set_exposed(rows);
  runtime::leave_waiting_out(rows);
  CHECK(rows[0].exposed->value == 2);
  CHECK(rows[1].exposed->value == 2);
  CHECK(rows[2].exposed->value == 1);  // another message
  CHECK(rows[3].exposed->value == 3);
  CHECK(rows[0].duration.value == 5);
}

TEST_CASE(
    "An operation that was interrupted in the run that counts takes its median, and all together that run's "
    "time") {
  std::vector<sim::Row> rows(3);
  rows[0].duration = {8};  // interrupted
  rows[1].duration = {3};
  rows[0].low = rows[0].high = rows[1].low = rows[1].high = {4};
  rows[2].duration = {5};  // has no times: stays as it is
  runtime::set_medians(rows, std::vector<std::vector<double>>{{4, 8, 4.5}, {3, 4, 5}, {}});
  CHECK(rows[0].duration.value / rows[1].duration.value == Approx(4.5 / 4));
  CHECK(rows[0].duration.value + rows[1].duration.value == Approx(11));
  CHECK(rows[2].duration.value == 5);
  for (const sim::Row& row : {rows[0], rows[1]}) {
    CHECK(row.low <= row.duration);
    CHECK(row.duration <= row.high);
  }
}

TEST_CASE("A calibration holds for the code of the kernels that it measured") {
  const CacheFolder cache;
  sim::Calibration other = calibration();
  REQUIRE(other.software.size() > 12);
  other.software.back() = other.software.back() == '0' ? '1' : '0';  // of the hash
  write_cache(sim::to_json(other));
  CHECK_FALSE(runtime::cached_this_machine());
}

TEST_CASE("A calibration of ranks holds for the code of the kernels and of the messages that it measured") {
  const CacheFolder cache;
  const int threads = std::max(1, static_cast<int>(runtime::own_cpus().size()) / 2);
  const std::filesystem::path file = runtime::this_machine_file().parent_path() /
                                     ("this-machine-2-ranks-" + std::to_string(threads) + "-threads.json");
  const auto is_taken = [&](const std::string& software) {
    sim::Calibration of_ranks = calibration();
    of_ranks.device = runtime::cpu_name(threads);
    of_ranks.software = software;
    std::ofstream(file) << sim::to_json(of_ranks);
    return runtime::cached_machine_of_ranks(2).has_value();
  };
  std::string other = runtime::ranks_version();
  CHECK(is_taken(other));
  other.back() = other.back() == '0' ? '1' : '0';  // of the hash
  CHECK_FALSE(is_taken(other));
  CHECK_FALSE(is_taken(runtime::kernels_version()));  // as before messages were told
}

TEST_CASE("Every calibration times the operations of the probe") {
  const auto is_same = [](const runtime::SingleOperation& a, const runtime::SingleOperation& b) {
    const sim::KernelSample x = sim::kernel_shape(a.operation(), a.bound_variables(), a.work());
    const sim::KernelSample y = sim::kernel_shape(b.operation(), b.bound_variables(), b.work());
    return x.kind == y.kind && x.dtype == y.dtype && x.rows == y.rows && x.cols == y.cols &&
           x.bytes == y.bytes;
  };
  const std::vector<runtime::SingleOperation> all = runtime::calibrated_operations();
  std::vector<runtime::SingleOperation> probe{runtime::probe_of_arithmetic()};
  probe.push_back(runtime::probe_of_memory());
  for (const runtime::SingleOperation& probed : probe)
    CHECK(std::any_of(all.begin(), all.end(), [&](const auto& single) { return is_same(single, probed); }));
}

TEST_CASE("A calibration times every kind that runs here, alone or in a run") {
  std::set<sim::OpKind> timed;
  for (const runtime::SingleOperation& single : runtime::calibrated_operations())
    timed.insert(single.operation().kind);
  sim::Hardware hardware = calibration().hardware;
  for (const sim::DType type : {sim::DType::bf16, sim::DType::fp16, sim::DType::fp8})
    hardware.peak[type] = hardware.peak_for(sim::DType::fp32);
  for (const sim::Scenario& scenario : runtime::calibrating_runs(hardware))
    for (const sim::Block& block : sim::make_plan(scenario).blocks)
      for (const sim::Operation& op : block.operations) timed.insert(op.kind);
  for (const sim::KindInfo& info : sim::kKinds) {
    INFO(sim::name(info.kind));
    // Copies to the host and back go over a link to a device, which a processor's own memory has not.
    const bool passes_link = sim::takes(info.kind, sim::Role::host);
    if (!sim::is_collective(info.kind) && !passes_link && !runtime::cpu_types(info.kind).empty())
      CHECK(timed.count(info.kind) == 1);
  }
}

TEST_CASE("A calibration times how frozen weights in 8 and in 4 bits are expanded, to fp32 and to bf16") {
  sim::Hardware hardware = calibration().hardware;
  hardware.peak[sim::DType::bf16] = hardware.peak_for(sim::DType::fp32);
  std::set<std::pair<sim::DType, sim::DType>> timed;  // from, to
  for (const sim::Scenario& scenario : runtime::calibrating_runs(hardware)) {
    const sim::Plan plan = sim::make_plan(scenario);
    for (const sim::Block& block : plan.blocks)
      for (const sim::Operation& op : block.operations)
        if (op.kind == sim::OpKind::dequantise)
          timed.emplace(*sim::narrow_storage(plan, op), plan.buffer(sim::operand(op, sim::Role::out))->dtype);
  }
  using enum sim::DType;
  CHECK(timed ==
        std::set<std::pair<sim::DType, sim::DType>>{{int8, fp32}, {int8, bf16}, {int4, fp32}, {int4, bf16}});
}

TEST_CASE("What operations of a run took each, times their number, is what they took in all") {
  sim::Scenario scenario = tests::scenario_of(tests::small_gpt());
  scenario.workload.seq_len = 32;
  scenario.workload.global_batch_size = 3 * scenario.workload.micro_batch_size;
  const sim::Report measured =
      runtime::short_run(scenario, {.steps = 2, .slowdown = {}, .device = {}}, {}, {});
  std::map<sim::OpKind, std::pair<double, double>> seconds;  // by rows; by samples
  for (const sim::Row& row : measured.rows)
    if (row.phase != sim::Phase::recompute) seconds[row.kind].first += row.duration.value;
  const sim::Plan plan = sim::make_plan(scenario);
  std::map<sim::OpKind, double> executions, samples;
  for (const sim::Action& action : plan.programs.front().actions)
    for (const sim::Operation& op : plan.blocks[static_cast<std::size_t>(action.block)].operations)
      ++executions[op.kind];
  for (const sim::KernelSample& sample : runtime::samples_of(measured, {})) {
    CHECK(sample.median.value > 0);
    seconds[sample.kind].second += sample.median.value;
    ++samples[sample.kind];
  }
  // Kinds with one row: the one sample, as often as it runs.
  int compared = 0;
  for (const auto& [kind, of] : seconds) {
    if (samples[kind] != 1) continue;
    INFO(sim::name(kind));
    CHECK(of.second * executions[kind] == Approx(of.first).epsilon(1e-9));
    ++compared;
  }
  CHECK(compared > 3);
}

TEST_CASE(
    "A short run counts that one of its repeated generations whose median token is the median of theirs") {
  const sim::Scenario scenario = tests::generation(tests::small_llama(), 6, 1);
  std::vector<double> medians, later;  // of each generation; tokens of this one behind the first
  std::size_t tokens = 0;
  const sim::Report counts =
      runtime::short_run(scenario, {.generations = 5, .slowdown = {}, .device = {}},
                         [&](const sim::Event& event) {
                           if (const auto* token = std::get_if<sim::TokenResult>(&event))
                             if (tokens++ > 0) later.push_back(token->duration.value);
                           if (std::holds_alternative<sim::EndEvent>(event)) {
                             std::ranges::sort(later);
                             medians.push_back(later.at(2));
                             later.clear();
                             tokens = 0;
                           }
                         },
                         {});
  REQUIRE(medians.size() == 5);
  std::ranges::sort(medians);
  CHECK(runtime::judged_time(counts).value == Approx(medians[2]));
}

TEST_CASE("Operations that one kernel did together are no samples, neither of the one nor of the other") {
  sim::Scenario scenario = tests::scenario_of(tests::small_gpt());
  scenario.workload.seq_len = 32;
  sim::Report measured = runtime::short_run(scenario, {.steps = 1, .slowdown = {}, .device = {}}, {}, {});
  const auto samples_of_kind = [&](sim::OpKind kind) {
    const std::vector<sim::KernelSample> samples = runtime::samples_of(measured, {});
    return std::count_if(samples.begin(), samples.end(),
                         [&](const auto& sample) { return sample.kind == kind; });
  };
  const auto row_of = [&](sim::OpKind kind) {
    return std::find_if(measured.rows.begin(), measured.rows.end(),
                        [&](const sim::Row& row) { return row.kind == kind; });
  };
  const auto gelus = samples_of_kind(sim::OpKind::gelu), losses = samples_of_kind(sim::OpKind::cross_entropy);
  REQUIRE(gelus > 0);
  REQUIRE(losses > 0);
  row_of(sim::OpKind::gelu)->fused_into = row_of(sim::OpKind::cross_entropy)->id;
  CHECK(samples_of_kind(sim::OpKind::gelu) == gelus - 1);
  CHECK(samples_of_kind(sim::OpKind::cross_entropy) == losses - 1);
}

TEST_CASE(
    "What ranks do on their part of the vocabulary is timed on all of the part that its dimensions say") {
  int of_vocabulary = 0;
  for (const runtime::SingleOperation& single : runtime::calibrated_operations()) {
    const sim::Operation& operation = single.operation();
    const kernels::VocabularyPart part = runtime::settings_to_time(operation).vocabulary;
    CHECK(part.first == 0);
    CHECK(part.count == operation.dims.vocab);
    of_vocabulary += operation.kind == sim::OpKind::cross_entropy_statistics && part.count > 0;
  }
  CHECK(of_vocabulary > 0);
}

TEST_CASE(
    "A calibration's peak is no less than what its fastest product of whole weights reaches, whatever else "
    "was timed") {
  const auto device = runtime::make_cpu_device(1);
  const std::vector<runtime::SingleOperation> all{
      runtime::product(sim::OpKind::matmul, 64, 64, 64),
      runtime::product_of_stored(64, 64, 64, sim::DType::int8, 0),
      runtime::head(sim::OpKind::cross_entropy_statistics, 16, 256)};
  constexpr sim::Bytes memory{std::int64_t{1} << 20};
  runtime::Stopwatch stopwatch(*device, memory, memory, sim::DType::fp32);
  sim::Calibration known = calibration();
  known.samples.clear();
  known.hardware.peak.clear();
  runtime::sample_kernels(all, stopwatch, {.memory = memory, .rotation = memory, .what = {}}, {}, {}, known);
  runtime::raise_peaks(known);
  const double peak = known.hardware.peak.at(sim::DType::fp32).value;
  double fastest = 0;
  for (const sim::KernelSample& sample : known.samples)
    if (sample.kind == sim::OpKind::matmul && !sample.stored)
      fastest = std::max(fastest, sample.flops.value / sample.median.value);
  CHECK(peak == fastest);
  CHECK(peak > 0);
  CHECK(known.hardware.peak.size() == 1);
  // A pace that makes samples faster raises it, one that makes them slower leaves it.
  const auto peak_at = [&](double times) {
    sim::Calibration other = known;
    for (sim::KernelSample& sample : other.samples) sample.median = sample.median * times;
    runtime::raise_peaks(other);
    return other.hardware.peak.at(sim::DType::fp32).value;
  };
  CHECK(peak_at(0.5) == 2 * peak);
  CHECK(peak_at(2) == peak);
}

TEST_CASE(
    "What was timed several times counts by its undisturbed median, or by its least where all were "
    "disturbed") {
  const auto timed = [](double seconds, double load) {
    runtime::TimedSample one{.sample = {}, .pace = {.arithmetic = seconds}, .load = load};
    one.sample.median = {seconds};
    return one;
  };
  const double busy = 2 * runtime::kDisturbance;
  const auto counts = [](const std::vector<runtime::TimedSample>& times) {
    const runtime::TimedSample found = runtime::typical(times);
    CHECK(found.pace.arithmetic == found.sample.median.value);  // as the machine was then
    return found.sample.median.value;
  };
  CHECK(counts({timed(9, 0), timed(1, busy), timed(5, 0), timed(7, 0)}) == 7);
  CHECK(counts({timed(9, 0), timed(7, 0)}) == 7);
  CHECK(counts({timed(3, busy), timed(4, 0)}) == 4);
  CHECK(counts({timed(3, busy), timed(2, busy), timed(4, busy)}) == 2);
}

TEST_CASE("What is timed in one pass has the median of the paces that were seen in it") {
  std::vector<runtime::TimedSample> times(3);
  times[0].pace = {.arithmetic = 20, .memory = 4};
  times[1].pace = {.arithmetic = 5, .memory = 3};
  times[2].pace = {.arithmetic = 9, .memory = 5};
  times[2].load = 1;
  runtime::share_pace(std::vector{&times[0], &times[1], &times[2]});
  for (const runtime::TimedSample& timed : times) {
    CHECK(timed.pace.arithmetic == 9);
    CHECK(timed.pace.memory == 4);
  }
  CHECK(times[2].load == 1);
  runtime::share_pace({});
}

TEST_CASE("Operations that are timed in several passes have one sample each, and progress counts each time") {
  const auto device = runtime::make_cpu_device(1);
  const std::vector<runtime::SingleOperation> both{
      runtime::product(sim::OpKind::matmul, 512, 512, 512),  // alone streams nothing
      runtime::head(sim::OpKind::cross_entropy_statistics, 16, 256)};
  constexpr sim::Bytes memory{std::int64_t{1} << 23};
  runtime::Stopwatch stopwatch(*device, memory, memory, sim::DType::fp32, {.seconds = 1e-3, .fewest = 1});
  sim::Calibration once = calibration(), thrice = calibration();
  once.samples.clear();
  thrice.samples.clear();
  runtime::Sampling sampling{.memory = memory, .rotation = memory, .what = {}};
  runtime::sample_kernels(both, stopwatch, sampling, {}, {}, once);
  std::vector<std::int64_t> done;
  sampling.passes = 3;
  sampling.passes_of_streams = 1;
  runtime::sample_kernels(
      both, stopwatch, sampling,
      [&](const sim::Event& event) {
        const auto& progress = std::get<sim::ProgressEvent>(event);
        done.push_back(progress.done);
        CHECK(progress.of == 9);
      },
      {}, thrice);
  CHECK(done == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9});
  REQUIRE(thrice.samples.size() == once.samples.size());
  for (std::size_t i = 0; i < once.samples.size(); ++i) {
    CHECK(thrice.samples[i].kind == once.samples[i].kind);
    CHECK(thrice.samples[i].working_set == once.samples[i].working_set);
  }
}

TEST_CASE("The probe finds by how much a calibration is off, and predictions are off by that less") {
  const int threads = kernels::cpu::threads();
  const auto device = runtime::make_cpu_device(threads);
  std::vector<runtime::SingleOperation> probed{runtime::probe_of_arithmetic()};
  probed.push_back(runtime::probe_of_memory());
  const sim::Bytes memory = runtime::uncached_size({});
  runtime::Stopwatch stopwatch(*device, memory, runtime::kCachedRotation, sim::DType::fp32);
  sim::Calibration known = calibration();
  CHECK_FALSE(runtime::probe_this_machine(known));  // it has no samples
  runtime::sample_kernels(
      probed, stopwatch, {.memory = memory, .rotation = runtime::kCachedRotation, .what = {}}, {}, {}, known);
  REQUIRE(known.samples.size() >= 3);
  // As if the machine had been ten times slower then, far more than neighbours change between two looks.
  for (sim::KernelSample& sample : known.samples) sample.median = sample.median * 10;
  const auto found = runtime::probe_this_machine(known);
  REQUIRE(found);
  CHECK_FALSE(runtime::is_steady(*found));
  CHECK(found->arithmetic < 0.5);
  CHECK(found->memory < 0.5);
  CHECK(runtime::slowdown_sentence(*found).find("faster by") != std::string::npos);
  // So does the probe that looks while a run lasts.
  for (sim::KernelSample& sample : known.samples) sample.median = sample.median * 1000;
  runtime::MachineProbe probe(known);
  CHECK(probe.of_run() == sim::Slowdown{});  // it has not looked yet
  CHECK(probe.look().arithmetic < 0.5);
  probe.begin();
  probe.ended(1);
  CHECK(probe.of_run().arithmetic < 0.5);
  CHECK(probe.of_run().memory < 0.5);
}

TEST_CASE("A run's pace is that of the steps that it is judged by, where a machine has two speeds") {
  const auto at = [](double speed) {
    return runtime::Pace{.arithmetic = 0.01 * speed, .memory = 0.003 * speed};
  };
  const auto near = [](const runtime::Pace& pace, double speed) {
    CHECK(pace.arithmetic == Approx(0.01 * speed));
    CHECK(pace.memory == Approx(0.003 * speed));
  };
  // Steps take as long as predicted, or 0.7 of that: most are slow, and so is the median one; with more fast
  // ones it is fast.
  std::vector<runtime::Stretch> stretches(5, {{1}, at(1)});
  stretches.insert(stretches.end(), 4, {{0.7}, at(0.7)});
  near(runtime::pace_of_run(stretches), 1);
  stretches.insert(stretches.end(), 4, {{0.7}, at(0.7)});
  near(runtime::pace_of_run(stretches), 0.7);
  // One step that was interrupted moves nothing, nor does one look, and one stretch is enough.
  stretches.push_back({{5}, at(0.7)});
  stretches.push_back({{0.7}, at(5)});
  near(runtime::pace_of_run(stretches), 0.7);
  near(runtime::pace_of_run({{{1}, at(1)}}), 1);
}

TEST_CASE("Interruptions that lengthen looks and a few tokens alike leave the pace of the median token") {
  const runtime::Pace interrupted{.arithmetic = 0.012, .memory = 0.0036};
  // One token in ten takes three times as long: 1.2 times in the mean, as the looks do.
  std::vector<double> tokens(10, 1);
  tokens[3] = 3;
  const runtime::Pace pace = runtime::pace_of_run(std::vector<runtime::Stretch>(6, {tokens, interrupted}));
  CHECK(pace.arithmetic == Approx(0.01));
  CHECK(pace.memory == Approx(0.003));
}

TEST_CASE("Tokens that take ever longer, as predicted, say nothing of the machine's pace") {
  const auto token = [](std::int64_t index, double seconds) {
    sim::TokenResult result;
    result.index = index;
    result.duration = {seconds};
    return result;
  };
  sim::Report predicted;
  for (int i = 0; i < 30; ++i) predicted.tokens.push_back(token(i, 0.001 * (i + 1)));
  runtime::Stretches stretches;
  const runtime::Pace pace{.arithmetic = 0.01, .memory = 0.003};
  stretches.looked(pace);
  for (int i = 1; i < 30; ++i) {
    const auto times = runtime::times_as_predicted(token(i, 0.002 * (i + 1)), predicted);
    REQUIRE(times);
    stretches.ended(*times);
    stretches.looked(pace);
  }
  CHECK(stretches.all().size() == 29);
  CHECK(runtime::pace_of_run(stretches.all()).arithmetic == Approx(0.01));
  CHECK(runtime::pace_of_run(stretches.all()).memory == Approx(0.003));
  // The first token is the prompt's, and what was not predicted has nothing beside it.
  CHECK_FALSE(runtime::times_as_predicted(token(0, 1), predicted));
  CHECK_FALSE(runtime::times_as_predicted(token(30, 1), predicted));
  CHECK_FALSE(runtime::times_as_predicted(sim::StepResult{1, 1, 1, sim::Seconds{1}, 64}, predicted));
  CHECK_FALSE(runtime::times_as_predicted(sim::Row{}, predicted));
}

TEST_CASE("How sure a run's pace is follows from how far apart its stretches are") {
  std::vector<runtime::Stretch> stretches;
  const auto add = [&](int count, double apart) {
    for (int i = 0; i < count; ++i)
      stretches.push_back({{0.1}, {.arithmetic = 0.01 * (i % 2 == 0 ? 1 + apart : 1 - apart), .memory = 1}});
  };
  add(6, 0);
  const auto looks = [](double apart) {
    std::vector<runtime::Pace> paces(22, {.arithmetic = 0.01, .memory = 1});
    for (std::size_t i = 0; i < paces.size(); ++i) paces[i].memory += i % 2 == 0 ? apart : -apart;
    return paces;
  };
  // Too few: as if there had been seven looks during the run as far apart as those around it, but no less
  // than where nothing is known.
  CHECK(runtime::error_of_run(stretches, {}) == sim::Slowdown{}.error);
  CHECK(runtime::error_of_run(stretches, looks(0.01)) == sim::Slowdown{}.error);
  CHECK(runtime::error_of_run(stretches, looks(0.3)) == Approx(0.642 * 0.6 / std::sqrt(7.0)));
  add(12, 0);
  CHECK(runtime::error_of_run(stretches, looks(0.3)) == Approx(0).margin(1e-12));
  // 16 of 18 count: 1.645 standard deviations of a mean of 16, each a tenth off.
  stretches.clear();
  add(18, 0.1);
  CHECK(runtime::error_of_run(stretches, looks(0.3)) == Approx(1.645 * 0.1 * std::sqrt(16.0 / 15) / 4));
  // Memory counts as well as arithmetic, and how steps and pace go together, not whether they change.
  for (runtime::Stretch& stretch : stretches) stretch = {{stretch.pace.arithmetic * 10}, stretch.pace};
  CHECK(runtime::error_of_run(stretches, looks(0.3)) ==
        Approx(1.645 * 0.1 * std::sqrt(16.0 / 15) / 4).epsilon(0.05));
  for (runtime::Stretch& stretch : stretches) stretch.pace.memory = 2 * stretch.times[0];
  CHECK(runtime::error_of_run(stretches, looks(0.3)) == Approx(0).margin(1e-12));
}

TEST_CASE("What was timed at another pace of memory or arithmetic counts as if at the median pace") {
  sim::Calibration known = calibration();
  known.hardware.last_level_cache = {1 << 20};
  known.launch = {};
  sim::KernelSample from_memory, from_cache, arithmetic;
  from_memory.kind = from_cache.kind = sim::OpKind::add;
  arithmetic.kind = sim::OpKind::matmul;
  from_memory.bytes = from_cache.bytes = {1 << 26};
  arithmetic.flops = {1e12};
  from_memory.working_set = {1ull << 40};  // so large that the share which the cache keeps is nothing
  from_cache.working_set = {1 << 18};
  for (sim::KernelSample* sample : {&from_memory, &from_cache, &arithmetic}) sample->median = {3};
  const std::vector<sim::KernelSample> timed{from_memory, from_cache, arithmetic, from_memory, arithmetic};
  const runtime::Pace usual{.arithmetic = 5, .memory = 1}, slow_memory{.arithmetic = 5, .memory = 2},
      slow_clock{.arithmetic = 15, .memory = 1};
  const auto check = [&](const std::vector<runtime::Pace>& paces, const std::vector<double>& expected) {
    known.samples = timed;
    runtime::set_to_one_pace(known, paces);
    for (std::size_t i = 0; i < timed.size(); ++i) {
      INFO(i);
      CHECK(known.samples[i].median.value == Approx(expected[i]));
    }
  };
  // Three of five looks found memory slow: that is the median, and the other sample from memory is set to it.
  check({slow_memory, slow_memory, slow_memory, usual, usual}, {3, 3, 3, 6, 3});
  // Two did: what went through memory then is set back. Caches were no slower.
  check({slow_memory, slow_memory, usual, usual, usual}, {1.5, 3, 3, 3, 3});
  // Caches and arithmetic follow the clock, memory does not.
  check({usual, slow_clock, slow_clock, usual, usual}, {3, 1, 1, 3, 3});
}

TEST_CASE("How much longer short operations take in runs is told by the median, and long ones do not count") {
  sim::Calibration known = calibration();
  const auto shape = [](std::int64_t rows) {
    const runtime::SingleOperation single = runtime::product(sim::OpKind::matmul, rows, 256, 256);
    return sim::kernel_shape(single.operation(), single.bound_variables(), single.work());
  };
  known.samples.push_back(shape(64));
  known.samples.back().median = sim::us(50);
  const auto in_run = [&](std::int64_t rows, double longer) {
    sim::KernelSample sample = shape(rows);
    const sim::Seconds ideal =
        sim::roofline_time(known.hardware, known.launch, sample.dtype, sample.flops, sample.bytes);
    const auto found = sim::calibrated_ratio(known, sample);
    REQUIRE(found);
    sample.median = {ideal.value * found->ratio + longer};
    return sample;
  };
  const sim::KernelSample interrupted = in_run(1, 1e-3), as_alone = in_run(1, 0);
  const sim::KernelSample longer = in_run(2, 7e-6), much_longer = in_run(3, 9e-6);
  const sim::KernelSample whole_prompt = in_run(1 << 16, 1);
  CHECK(runtime::longer_in_runs(known, std::vector{interrupted, longer, as_alone, whole_prompt}).value ==
        Approx(7e-6));
  CHECK(runtime::longer_in_runs(known, std::vector{longer, much_longer}).value == Approx(8e-6));
  CHECK(runtime::longer_in_runs(known, {}).value == 0);
  CHECK(runtime::longer_in_runs(known, std::vector{in_run(1, -1e-7)}).value == 0);
}

TEST_CASE("A machine that takes twice as long is predicted to take twice as long") {
  sim::Scenario scenario = tests::scenario_of(tests::small_gpt());
  scenario.workload.seq_len = 32;
  sim::Calibration known = calibration();
  known.hardware.is_cpu = scenario.hardware.is_cpu = true;
  const sim::Seconds before = sim::step_time(sim::predict(scenario, &known));
  known.slowdown = {2, 2, 0.03};
  const sim::Report slow = sim::predict(scenario, &known);
  CHECK(sim::step_time(slow) / before == Approx(2).epsilon(1e-9));
  const sim::Report read = sim::report_from_json(sim::to_json(slow), "a report");
  CHECK(read.source.slowdown == known.slowdown);
}

TEST_CASE("Another thread's work is our own, not another program's load") {
  runtime::OtherLoad others;
  if (!others.known()) SKIP_WITHOUT("account of how busy the cores are");
  std::atomic<bool> over = false;
  std::thread busy([&] {
    while (!over) {
    }
  });
  const std::clock_t before = std::clock();  // of all the process's threads
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  const double own = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  const runtime::OtherLoad::Use use = others.look(kernels::cpu::threads());
  over = true;
  busy.join();
  CHECK(use.seconds > 0.5);
  // On a machine with other work the rest of its cores may be busy, never those that this thread has;
  // accounts tick every 10 ms.
  CHECK(own > 0);
  CHECK(use.cores <= static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN)) - own / use.seconds + 0.2);
  CHECK(use.missed <= use.cores);
}

TEST_CASE("Resident memory grows by what is touched") {
  const sim::Bytes before = runtime::resident_memory();
  constexpr std::size_t kSize = 64 << 20;
  const std::vector<char> touched(kSize, 1);
  const sim::Bytes grown = runtime::resident_memory() - before;
  CHECK(touched.back() == 1);
  CHECK(grown.value > static_cast<std::int64_t>(kSize * 9 / 10));
}

TEST_CASE("Usable memory is no more than the machine's, and holds this process") {
  CHECK(runtime::physical_memory().value <=
        static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE));
  CHECK(runtime::physical_memory() > runtime::resident_memory());
}
