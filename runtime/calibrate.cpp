#include "runtime/calibrate.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/code.h"
#include "kernels/threads.h"
#include "runtime/cache_shares.h"
#include "runtime/calibration_limits.h"
#include "runtime/code.h"
#include "runtime/device.h"
#include "runtime/gpu_state.h"
#include "runtime/last_cache.h"
#include "runtime/machine_pace.h"
#include "runtime/measured.h"
#include "runtime/run.h"
#include "runtime/sample_kernels.h"
#include "runtime/sample_runs.h"
#include "runtime/single_operation.h"
#include "runtime/stopwatch.h"
#include "runtime/this_machine.h"
#include "sim/cost/work.h"
#include "sim/plan/memory.h"
#include "sim/quantile.h"

namespace runtime {
namespace {

using sim::Access;
using sim::OpKind;

struct ExpertRows {
  std::int64_t experts, of_each;
};

// weights: (N, K).
void add_products_of_experts(std::vector<SingleOperation>& all, std::initializer_list<ExpertRows> all_rows,
                             std::initializer_list<std::pair<std::int64_t, std::int64_t>> weights) {
  for (const OpKind kind : {OpKind::grouped_matmul, OpKind::grouped_matmul_backward_input,
                            OpKind::grouped_matmul_backward_weight})
    for (const ExpertRows& rows : all_rows) {
      if (kind != OpKind::grouped_matmul && rows.of_each == 1) continue;  // as decoding has them
      for (const auto& [N, K] : weights)
        all.push_back(grouped_product(kind, rows.experts * rows.of_each, rows.experts, N, K));
    }
}

// Products, also of experts, attention of whole prompts, and optimizers, of every size. What stands between
// them in a layer is timed in runs (runtime/sample_runs): most of its time goes to fetching what they left in
// other cores' caches, and it would not find that if it were timed alone.
std::vector<SingleOperation> operations_in_fp32() {
  std::vector<SingleOperation> all;
  constexpr std::pair<std::int64_t, std::int64_t> kWeights[] = {
      // (N, K)
      {96, 96},   {288, 96},   {96, 288},   {256, 256},  {1024, 256},  {256, 1024}, {448, 448},
      {768, 768}, {2304, 768}, {3072, 768}, {768, 3072}, {2048, 2048}, {8192, 256}, {32768, 768}};
  constexpr double kMostFlops = 3e10;
  for (const OpKind kind : {OpKind::matmul, OpKind::matmul_backward_input, OpKind::matmul_backward_weight})
    // 27: prompts and texts seldom have a number of rows that a register tile divides.
    for (const std::int64_t M : {1, 4, 8, 27, 64, 256, 1024, 4096}) {
      if (kind != OpKind::matmul && M < 64) continue;  // training has more rows than that
      for (const auto& [N, K] : kWeights)
        if (2.0 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K) <= kMostFlops)
          all.push_back(product(kind, M, N, K));
    }
  add_products_of_experts(all, {{2, 1}, {8, 12}, {8, 44}, {8, 128}, {8, 512}},
                          {{512, 256}, {256, 512}, {1792, 448}, {448, 896}, {768, 1536}});
  constexpr Heads kHeads[] = {{4, 4, 32}, {9, 3, 64}, {12, 12, 64}};
  for (const Heads& h : kHeads) {
    for (const OpKind kind : {OpKind::attention_flash, OpKind::attention_flash_backward,
                              OpKind::attention_standard, OpKind::attention_standard_backward})
      for (const std::int64_t T : {64, 256, 1024}) all.push_back(attention(kind, T < 1024 ? 4 : 1, T, h));
    for (const std::int64_t length : {64, 256, 1024})
      all.push_back(cached(OpKind::attention_cached, 1, length, length, h));
  }
  for (const OpKind kind : {OpKind::zero, OpKind::squared_norm, OpKind::adamw})
    for (const std::int64_t count :
         {std::int64_t{1} << 10, std::int64_t{1} << 16, std::int64_t{1} << 20, std::int64_t{1} << 24})
      all.push_back(optimizer(kind, count));
  all.push_back(optimizer(OpKind::clip_scale, 0));
  all.push_back(probe_of_memory());  // the other probe's product is among them
  return all;
}

// Operations that run only on ranks that divide sequences or the vocabulary.
std::vector<SingleOperation> operations_of_ranks() {
  std::vector<SingleOperation> all;
  for (const Heads& h : {Heads{4, 4, 32}, Heads{9, 3, 64}, Heads{12, 12, 64}})
    for (const std::int64_t T : {64, 256, 1024}) {
      const std::int64_t B = T < 1024 ? 4 : 1;
      for (const OpKind kind : {OpKind::attention_partial, OpKind::attention_partial_backward})
        for (const bool others : {false, true}) all.push_back(attention_of_segments(kind, B, T, h, others));
      all.push_back(attention_of_segments(OpKind::attention_merge, B, T, h, true));
    }
  for (const std::int64_t R : {64, 1024})
    for (const std::int64_t V : {256, 16384}) all.push_back(head(OpKind::cross_entropy_statistics, R, V));
  return all;
}

// Operations with kernels of their own in bf16: products, with training's and decoding's rows, and attention.
std::vector<SingleOperation> operations_in_bf16() {
  std::vector<SingleOperation> all;
  constexpr std::pair<std::int64_t, std::int64_t> kWeights[] = {
      // (N, K)
      {96, 96},   {288, 96},   {96, 288},   {256, 256},  {1024, 256}, {256, 1024},
      {768, 768}, {2304, 768}, {3072, 768}, {768, 3072}, {32768, 768}};
  constexpr double kMostFlops = 3e10;
  for (const OpKind kind : {OpKind::matmul, OpKind::matmul_backward_input, OpKind::matmul_backward_weight})
    for (const std::int64_t M : {1, 8, 256, 1024, 4096}) {
      if (kind != OpKind::matmul && M < 256) continue;
      for (const auto& [N, K] : kWeights)
        if (2.0 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K) <= kMostFlops)
          all.push_back(product(kind, M, N, K));
    }
  add_products_of_experts(all, {{8, 1}, {8, 44}, {8, 512}}, {{512, 256}, {1792, 448}, {768, 1536}});
  for (const Heads& h : {Heads{8, 8, 32}, Heads{12, 12, 64}})
    for (const std::int64_t T : {128, 512, 1024})
      for (const OpKind kind : {OpKind::attention_flash, OpKind::attention_flash_backward})
        all.push_back(attention(kind, 4, T, h));
  for (SingleOperation& single : all) single.computing_in(sim::DType::bf16);
  return all;
}

// Products alone, in a type whose operands are widened for the kernels of another: fp16, fp8.
std::vector<SingleOperation> products_in_widened(sim::DType dtype) {
  std::vector<SingleOperation> all;
  for (const OpKind kind : {OpKind::matmul, OpKind::matmul_backward_input, OpKind::matmul_backward_weight})
    for (const std::int64_t M : {256, 1024})
      for (const auto& [N, K] : {std::pair<std::int64_t, std::int64_t>{768, 256}, {768, 768}, {3072, 768}})
        all.push_back(product(kind, M, N, K));
  for (SingleOperation& single : all) single.computing_in(dtype);
  return all;
}

// Products whose weights generation stores in fewer bits.
std::vector<SingleOperation> operations_of_stored_weights() {
  std::vector<SingleOperation> all;
  // (N, K)
  constexpr std::pair<std::int64_t, std::int64_t> kWeights[] = {
      {640, 384}, {640, 640}, {2048, 384}, {896, 2304}, {4608, 896}};
  for (const sim::DType weights : {sim::DType::int8, sim::DType::int4})
    for (const std::int64_t M : {1, 4, 16, 96, 320})
      for (const auto& [N, K] : kWeights) all.push_back(product_of_stored(M, N, K, weights, 0));
  // Other types: fewer, as kernels of codes differ in how these are unpacked alone.
  constexpr std::pair<std::int64_t, std::int64_t> kOfBlocks[] = {{640, 512}, {2048, 768}, {896, 2304}};
  for (const sim::DType weights : {sim::DType::fp8, sim::DType::int5, sim::DType::q2_k, sim::DType::q3_k,
                                   sim::DType::q4_k, sim::DType::q5_k, sim::DType::q6_k})
    for (const std::int64_t M : {1, 16, 96})
      for (const auto& [N, K] : kOfBlocks)
        all.push_back(product_of_stored(M, N, K, weights, weights == sim::DType::int5 ? 32 : 0));
  // Experts': the two types without blocks, and the two of most GGUF files. What is known of the others is
  // how fast plain products in them are.
  for (const sim::DType weights : {sim::DType::int8, sim::DType::int4, sim::DType::q4_k, sim::DType::q6_k})
    for (const ExpertRows& rows : {ExpertRows{2, 1}, {8, 1}, {8, 20}})
      for (const auto& [N, K] : {std::pair<std::int64_t, std::int64_t>{512, 256}, {768, 1536}})
        all.push_back(grouped_product_of_stored(rows.experts * rows.of_each, rows.experts, N, K, weights, 0));
  return all;
}

std::vector<SingleOperation> within_limits(std::vector<SingleOperation> operations) {
  const double most = calibration_limits().operation_flops;
  std::erase_if(operations,
                [most](const SingleOperation& single) { return single.work().flops.value > most; });
  return operations;
}

// Half of the last cache's size: so much stays in it beside all else that a step touches. `held` 0: unknown.
sim::Bytes cached_rotation(sim::Bytes held) {
  constexpr std::int64_t kLeast = 4 << 20;
  const std::int64_t most = kCachedRotation.value;
  return {held.value > 0 ? std::clamp(held.value / 2, kLeast, most) : most};
}

// The kinds that only stream, on operands that no cache holds: the fastest one tells memory's bandwidth.
std::vector<SingleOperation> streaming_operations(sim::Bytes size) {
  const std::int64_t floats = size.value / static_cast<std::int64_t>(sizeof(float));
  return {elementwise(OpKind::add, floats / 3 / 1024 - 1, 1024), optimizer(OpKind::adamw, floats / 4 - 1024)};
}

// An operation with negligible work that still wakes the threads: its time is the fixed cost of an
// operation.
SingleOperation launch_operation() {
  return elementwise(OpKind::gelu, 64, 256);
}

sim::Bytes largest_operands(const std::vector<SingleOperation>& operations) {
  sim::Bytes largest;
  for (const SingleOperation& single : operations) largest = std::max(largest, operands_size(single));
  return largest;
}

// How much longer an operation takes after one of another kind than after one like itself: its code and its
// operands come from further away.
sim::Seconds change_of_kernels(Stopwatch& stopwatch, const std::vector<SingleOperation>& in_turn) {
  double alone = 0;
  for (const SingleOperation& single : in_turn) alone += stopwatch.time_cached(single).median;
  const double together = stopwatch.time_in_turn(in_turn).median;
  return {std::max(0.0, (together - alone) / static_cast<double>(in_turn.size()))};
}

// What plans of 124M to 8B parameters ask of a GPU: every kernel in bf16, in which most of them compute.
std::vector<SingleOperation> operations_of_gpu() {
  std::vector<SingleOperation> all;
  constexpr std::pair<std::int64_t, std::int64_t> kWeights[] = {
      // (N, K): GPT-2 124M and 1.5B, Llama 1B and 8B, their heads
      {2304, 768},   {3072, 768},   {768, 3072},   {4800, 1600},   {6400, 1600},  {1600, 6400},
      {3072, 2048},  {16384, 2048}, {2048, 8192},  {6144, 4096},   {4096, 4096},  {28672, 4096},
      {4096, 14336}, {50304, 768},  {50304, 1600}, {128256, 2048}, {128256, 4096}};
  for (const OpKind kind : {OpKind::matmul, OpKind::matmul_backward_input, OpKind::matmul_backward_weight})
    for (const std::int64_t M : {1, 8, 64, 1024, 4096, 16384}) {
      if (kind != OpKind::matmul && M < 1024) continue;
      for (const auto& [N, K] : kWeights) all.push_back(product(kind, M, N, K));
    }
  constexpr std::pair<std::int64_t, std::int64_t> kStored[] = {
      {2304, 768}, {3072, 2048}, {2048, 2048}, {16384, 2048}, {2048, 8192}, {28672, 4096}, {4096, 14336}};
  for (const auto& [weights, group] :
       {std::pair{sim::DType::int8, 0}, {sim::DType::fp8, 0}, {sim::DType::int4, 128}})
    for (const std::int64_t M : {1, 16, 64})
      for (const auto& [N, K] : kStored) all.push_back(product_of_stored(M, N, K, weights, group));
  for (const OpKind kind :
       {OpKind::layernorm, OpKind::layernorm_backward, OpKind::rmsnorm, OpKind::rmsnorm_backward})
    for (const std::int64_t R : {1, 64, 4096, 16384})
      for (const std::int64_t C : {768, 1600, 2048, 4096}) all.push_back(norm(kind, R, C));
  for (const OpKind kind :
       {OpKind::gelu, OpKind::gelu_backward, OpKind::swiglu, OpKind::swiglu_backward, OpKind::add})
    for (const std::int64_t R : {1, 64, 4096, 16384})
      for (const std::int64_t F : {3072, 8192, 14336}) all.push_back(elementwise(kind, R, F));
  constexpr Heads kHeads[] = {{12, 12, 64}, {25, 25, 64}, {32, 8, 64}, {32, 8, 128}};
  for (const Heads& h : kHeads) {
    for (const OpKind kind : {OpKind::attention_flash, OpKind::attention_flash_backward}) {
      // Few blocks leave some of the GPU without work.
      for (const std::int64_t tokens : {4096, 16384})
        for (const std::int64_t T : {1024, 2048, 4096, 16384})
          if (T <= tokens) all.push_back(attention(kind, tokens / T, T, h));
    }
    for (const OpKind kind : {OpKind::attention_standard, OpKind::attention_standard_backward})
      for (const std::int64_t T : {1024, 2048}) all.push_back(attention(kind, 4096 / T, T, h));
    for (const OpKind kind : {OpKind::rope, OpKind::rope_backward})
      for (const std::int64_t T : {1, 1024, 16384}) all.push_back(attention(kind, 1, T, h));
    for (const std::int64_t batch : {1, 8, 64})
      for (const std::int64_t length : {256, 1024, 4096, 16384}) {
        all.push_back(cached(OpKind::kv_append, batch, 1, length, h));
        all.push_back(cached(OpKind::attention_cached, batch, 1, length, h));
      }
    for (const std::int64_t length : {256, 1024, 4096})
      all.push_back(cached(OpKind::attention_cached, 1, length, length, h));
  }
  for (const OpKind kind : {OpKind::embedding, OpKind::embedding_backward})
    for (const std::int64_t R : {1, 4096, 16384})
      for (const std::int64_t C : {768, 4096}) all.push_back(embedding(kind, R, C, 50304));
  for (const std::int64_t V : {50304, 128256}) {
    for (const std::int64_t R : {1024, 8192}) all.push_back(head(OpKind::cross_entropy, R, V));
    for (const std::int64_t R : {1, 64}) all.push_back(head(OpKind::sample, R, V));
  }
  for (const std::int64_t count : {1 << 12, 1 << 20, 1 << 24, 1 << 28}) {
    for (const OpKind kind : {OpKind::zero, OpKind::squared_norm}) all.push_back(optimizer(kind, count));
    all.push_back(adamw_with_master(count));
  }
  all.push_back(optimizer(OpKind::clip_scale, 0));
  return all;
}

// Operations with kernels of their own in another type, in fewer sizes: matrix products, attention, and what
// a plan holds because of that type.
std::vector<SingleOperation> operations_of_gpu_in(sim::DType dtype) {
  std::vector<SingleOperation> all;
  constexpr std::pair<std::int64_t, std::int64_t> kWeights[] = {
      // (N, K): GPT-2 124M, Llama 1B and 8B, a head
      {3072, 768}, {768, 3072}, {2048, 8192}, {6144, 4096}, {4096, 14336}, {50304, 768}};
  // What computes without tensor cores takes as long as the rest with less work.
  const double most_flops = dtype == sim::DType::fp32 ? 6e11 : 4e12;
  for (const OpKind kind : {OpKind::matmul, OpKind::matmul_backward_input, OpKind::matmul_backward_weight})
    for (const std::int64_t M : {1, 64, 1024, 4096, 16384}) {
      // Only training has so many rows; in fp8 there is only training.
      if (M < 1024 && (kind != OpKind::matmul || dtype == sim::DType::fp8)) continue;
      for (const auto& [N, K] : kWeights)
        if (2.0 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K) <= most_flops)
          all.push_back(product(kind, M, N, K));
    }
  constexpr Heads kHeads[] = {{12, 12, 64}, {32, 8, 128}};
  if (dtype != sim::DType::fp8)
    for (const Heads& h : kHeads) {
      // Where products are in fp32 or tf32, attention is a simple kernel in fp32, for checks.
      const std::int64_t tokens = dtype == sim::DType::fp16 ? 16384 : 1024;
      for (const OpKind kind : {OpKind::attention_flash, OpKind::attention_flash_backward})
        for (std::int64_t T = 1024; T <= tokens; T *= 4) all.push_back(attention(kind, tokens / T, T, h));
      for (const std::int64_t length : {256, 4096})
        all.push_back(cached(OpKind::attention_cached, 1, 1, length, h));
    }
  for (const std::int64_t count : {1 << 12, 1 << 20, 1 << 24, 1 << 28}) {
    if (dtype == sim::DType::fp16) all.push_back(optimizer(OpKind::unscale, count));
    if (dtype == sim::DType::fp8) all.push_back(optimizer(OpKind::quantise, count));
  }
  return all;
}

}  // namespace

std::string kernels_version() {
  return software_version() + ", cpu kernels " + std::string(kernels::cpu_code());
}

std::string ranks_version() {
  return kernels_version() + ", messages " + std::string(ranks_code());
}

std::vector<SingleOperation> calibrated_operations() {
  std::vector<SingleOperation> all = operations_in_fp32();
  for (SingleOperation& single : operations_of_stored_weights()) all.push_back(std::move(single));
  for (SingleOperation& single : operations_in_bf16()) all.push_back(std::move(single));
  for (SingleOperation& single : operations_of_ranks()) all.push_back(std::move(single));
  return all;
}

std::string gpu_kernels_version() {
  return software_version() + ", cuda kernels " + std::string(kernels::cuda_code());
}

std::optional<sim::SustainedLoad> measure_sustained_load(Device& device, Stopwatch& stopwatch,
                                                         const SingleOperation& operation,
                                                         sim::Seconds length, const std::stop_token& stop) {
  const double flops = operation.work().flops.value;
  sim::SustainedLoad load;
  load.burst = {flops / stopwatch.time_cached(operation).median};
  GpuMonitor monitor(device.pci_bus_id());
  const std::vector<double> samples = stopwatch.time_for(operation, length.value, stop);
  if (stop.stop_requested()) return std::nullopt;
  const auto half = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  load.sustained = {flops / sim::quantile({half, samples.end()}, 0.5)};
  const std::vector<sim::DeviceSample> states = monitor.take();
  if (states.empty()) {
    load.lasted = length;
    return load;
  }
  load.lasted = states.back().time;
  double count = 0;
  for (const sim::DeviceSample& state : states) {
    if (state.time.value < load.lasted.value / 2) continue;
    ++count;
    load.sm_clock_mhz += state.sm_clock_mhz;
    load.power_w += state.power_w;
    load.temperature_c = std::max(load.temperature_c, state.temperature_c);
    if (!state.throttle.empty()) load.throttle = state.throttle;
  }
  load.sm_clock_mhz /= count;
  load.power_w /= count;
  return load;
}

namespace {

// Brings all samples to one pace, and the first `alone` ones, timed alone, to the times that runs have.
void to_one_pace_and_as_in_runs(sim::Calibration& calibration, std::size_t alone,
                                const std::vector<TimedSample>& in_runs, std::vector<Pace> paces) {
  if (paces.empty()) return;
  std::vector<sim::KernelSample>& samples = calibration.samples;
  const std::size_t kept = samples.size();
  for (const TimedSample& timed : in_runs) {
    samples.push_back(timed.sample);
    paces.push_back(timed.pace);
  }
  const Pace usual = set_to_one_pace(calibration, paces);
  const std::vector<sim::KernelSample> known(samples.begin() + static_cast<std::ptrdiff_t>(kept),
                                             samples.end());
  samples.resize(kept);
  const sim::Seconds longer = longer_in_runs(calibration, known);
  for (std::size_t i = 0; i < alone; ++i) samples[i].median = samples[i].median + longer;
  raise_peaks(calibration);  // products that were timed at a slower pace than the usual one are faster now
  tell_pace_by(usual, calibration);
}

// What is known before any kernel is timed. Its launch time and bandwidth are the best known so far.
sim::Calibration begin_calibration(Device& device, int ranks, const std::stop_token& stop) {
  sim::Calibration calibration;
  calibration.device = device.name();
  calibration.date = utc_now();
  calibration.software = kernels_version();

  sim::Hardware& hardware = calibration.hardware;
  hardware.name = "this-machine";
  hardware.display_name = device.name();
  hardware.is_cpu = true;
  hardware.memory = physical_memory();
  hardware.last_level_cache = last_level_cache(ranks);
  hardware.multiprocessors = kernels::cpu::threads();
  hardware.source = "measured " + calibration.date;
  calibration.cache_shares = measure_cache_shares(device, hardware.last_level_cache, stop);
  calibration.launch = {std::numeric_limits<double>::infinity()};
  return calibration;
}

}  // namespace

sim::Calibration calibrate_cpu(const EventSink& sink, const std::stop_token& stop, int threads, int ranks,
                               BegunCalibration* begun) {
  const std::unique_ptr<Device> device = make_cpu_device(threads);
  std::vector<SingleOperation> operations = within_limits(operations_in_fp32());
  for (SingleOperation& single : within_limits(operations_of_stored_weights()))
    operations.push_back(std::move(single));
  if (ranks > 1)
    for (SingleOperation& single : operations_of_ranks()) operations.push_back(std::move(single));

  const bool goes_on = begun && !begun->calibration.device.empty();
  if (goes_on) begun->pieces.ask_from_first();
  sim::Calibration calibration = goes_on ? begun->calibration : begin_calibration(*device, ranks, stop);
  if (stop.stop_requested()) return calibration;
  sim::Hardware& hardware = calibration.hardware;
  const sim::Bytes memory = std::max(uncached_size(hardware.last_level_cache), largest_operands(operations));
  const sim::Bytes rotation = cached_rotation(
      calibration.cache_shares.empty() ? hardware.last_level_cache : held(calibration.cache_shares));
  // Measured before and after the kernels: another program may have disturbed one of the two.
  const auto measure_limits = [&] {
    Stopwatch stopwatch(*device, memory, rotation, sim::DType::fp32);
    for (const SingleOperation& single : streaming_operations(memory)) {
      if (stop.stop_requested()) return;
      hardware.memory_bandwidth =
          std::max(hardware.memory_bandwidth,
                   single.work().memory() / sim::Seconds{stopwatch.time_cached(single).median});
    }
    calibration.launch = std::min(calibration.launch, {stopwatch.time_cached(launch_operation()).median});
    hardware.launch = calibration.launch;
  };
  if (!goes_on) measure_limits();
  if (stop.stop_requested()) return calibration;
  if (begun) begun->calibration = calibration;
  MachinePace pace(*device, hardware.last_level_cache);
  std::vector<Pace> paces;
  constexpr SampleLength kEachPass{.seconds = 0.01, .most = 10, .fewest = 1};
  Sampling sampling{.memory = memory,
                    .rotation = rotation,
                    .threads = hardware.multiprocessors,
                    .passes = 3,
                    .passes_of_streams = 2,
                    .what = "measuring this machine",
                    .pace = &pace,
                    .paces = &paces,
                    .pieces = begun ? &begun->pieces : nullptr};
  const auto sample_in = [&](sim::DType dtype, const std::vector<SingleOperation>& kernels) {
    if (dtype != sim::DType::fp32)
      sampling.what = "measuring this machine in " + std::string(sim::name(dtype));
    Stopwatch stopwatch(*device, memory, rotation, stored_type(dtype), kEachPass);
    sample_kernels(kernels, stopwatch, sampling, sink, stop, calibration);
    raise_peaks(calibration);
  };
  sample_in(sim::DType::fp32, operations);
  if (stop.stop_requested()) return calibration;
  sample_in(sim::DType::bf16, within_limits(operations_in_bf16()));
  for (const sim::DType widened : {sim::DType::fp16, sim::DType::fp8}) {
    if (stop.stop_requested()) return calibration;
    sample_in(widened, within_limits(products_in_widened(widened)));
  }
  measure_limits();
  if (stop.stop_requested()) return calibration;
  sampling.what = "measuring this machine in short runs";
  const std::size_t alone = calibration.samples.size();
  const std::vector<TimedSample> in_runs = sample_runs(
      calibrating_runs(hardware), {.threads = hardware.multiprocessors}, sampling, sink, stop, calibration);
  if (stop.stop_requested()) return calibration;
  to_one_pace_and_as_in_runs(calibration, alone, in_runs, paces);
  sim::set_residuals(calibration);
  return calibration;
}

GpuMeasurements gpu_measurements(std::span<const sim::DType> types, const sim::Hardware& hardware) {
  constexpr Heads kHeads{32, 8, 64};
  GpuMeasurements what{
      .operations = {},
      .in_turn = {product(OpKind::matmul, 1, 3072, 2048),
                  cached(OpKind::attention_cached, 1, 1, 1024, kHeads),
                  product(OpKind::matmul, 1, 2048, 2048), elementwise(OpKind::gelu, 1, 8192)},
      .largest = product(OpKind::matmul, 16384, 28672, 4096),
      .load = {8},  // heat takes seconds
      .uncached = {4 * hardware.last_level_cache.value + (std::int64_t{1} << 30)}};
  for (const sim::DType dtype : types) {
    if (!hardware.has_peak_for(dtype)) continue;  // there is nothing that samples could be related to
    auto& operations = what.operations[dtype];
    operations = dtype == sim::DType::bf16 ? operations_of_gpu() : operations_of_gpu_in(dtype);
    for (SingleOperation& single : operations) single.computing_in(dtype);
  }
  what.largest.computing_in(sim::DType::bf16);
  for (SingleOperation& single : what.in_turn) single.computing_in(sim::DType::bf16);
  return what;
}

namespace {

// Half of the last cache's size stays in it beside all else that a step touches; several times its size fits
// in no cache. The same in every type, since samples are compared by how much memory they went through.
struct WaysThroughMemory {
  sim::Bytes memory, rotation;
};
WaysThroughMemory ways_through_memory(const GpuMeasurements& what, const sim::Hardware& hardware) {
  WaysThroughMemory ways{.memory = std::max(what.uncached, operands_size(what.largest)),
                         .rotation = {hardware.last_level_cache.value / 2}};
  for (const auto& [dtype, operations] : what.operations)
    ways.memory = std::max(ways.memory, largest_operands(operations));
  return ways;
}

}  // namespace

sim::Calibration calibrate_gpu(Device& device, const sim::Hardware& hardware, const GpuMeasurements& what,
                               const EventSink& sink, const std::stop_token& stop) {
  sim::Calibration calibration;
  calibration.device = device.name();
  calibration.date = utc_now();
  calibration.software = gpu_kernels_version();
  calibration.hardware = hardware;

  const auto [memory, rotation] = ways_through_memory(what, hardware);
  const auto stopwatch_for = [&](sim::DType dtype) {
    return Stopwatch(device, memory, rotation, stored_type(dtype), what.sample);
  };
  {
    Stopwatch stopwatch = stopwatch_for(sim::DType::bf16);
    calibration.launch = {stopwatch.time_cached(launch_operation().in(sim::DType::bf16)).median};
    calibration.change = change_of_kernels(stopwatch, what.in_turn);
  }
  for (const auto& [dtype, operations] : what.operations) {
    if (stop.stop_requested()) break;
    Stopwatch stopwatch = stopwatch_for(dtype);
    const Sampling sampling{.memory = memory,
                            .rotation = rotation,
                            .rest = 1,
                            .what = "measuring " + device.name() + " in " + std::string(sim::name(dtype))};
    sample_kernels(operations, stopwatch, sampling, sink, stop, calibration);
  }
  Stopwatch stopwatch = stopwatch_for(sim::DType::bf16);
  calibration.load = measure_sustained_load(device, stopwatch, what.largest, what.load, stop);
  if (calibration.load)
    calibration.hardware.sustained_clock =
        std::min(1.0, calibration.load->sustained.value / calibration.load->burst.value);
  sim::set_residuals(calibration);
  return calibration;
}

sim::Calibration calibrate_gpu(const DeviceChoice& choice, const sim::Hardware& hardware,
                               const EventSink& sink, const std::stop_token& stop) {
  const std::unique_ptr<Device> device = open_device(choice);
  const GpuMeasurements what = gpu_measurements(device->dtypes(), hardware);
  sim::Calibration calibration = calibrate_gpu(*device, hardware, what, sink, stop);
  if (stop.stop_requested()) return calibration;
  const auto [memory, rotation] = ways_through_memory(what, hardware);
  const Sampling sampling{
      .memory = memory, .rotation = rotation, .what = "measuring " + device->name() + " in short runs"};
  sample_runs(gpu_calibrating_runs(hardware), choice, sampling, sink, stop, calibration);
  sim::set_residuals(calibration);
  return calibration;
}

}  // namespace runtime
