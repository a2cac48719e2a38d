// Exhaustive search of how a model may be served: every division over GPUs, every batch, every type of
// weights and cache that is asked for. An engine's iterations are priced as predict() of serving does.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "sim/cost/calibration.h"
#include "sim/cost/iteration.h"
#include "sim/enum_array.h"
#include "sim/plan/legality.h"
#include "sim/planner/search.h"
#include "sim/scenario/scenario.h"

namespace sim {

// A candidate is one value of each; fields listed last change fastest. Devices that an engine leaves are
// further engines, each with its share of the load.
struct ServingSpace {
  Scenario base;             // task generate, an implementation with a serving profile
  std::vector<int> devices;  // of all engines together
  std::vector<std::optional<DType>> weights_dtype, kv_dtype;  // empty: workload.dtype
  std::vector<int> tensor_parallel;
  std::vector<int> expert_parallel;  // each of these ranks attends to sequences of its own
  std::vector<int> pipeline_parallel;
  // Sequences of an engine at a time (of each rank that attends for itself). With traffic: the most that its
  // scheduler lets run at a time; 0: the engine's own limit.
  std::vector<std::int64_t> batch_size;

  bool operator==(const ServingSpace&) const = default;
};

// Requests of the base's lengths that come at random to all engines together; none: batches that begin and
// end together.
struct ServingTraffic {
  double requests_per_second = 0;
  Seconds duration{120};
  std::uint64_t seed = 0;
  bool operator==(const ServingTraffic&) const = default;
};

// Every division of the devices that the model allows: tensor parallel within a node, stages, experts;
// batches from 1 in steps of a half to a third (1, 2, 3, 4, 6, 8, 12, ...) up to 4,096, or, for traffic, the
// engine's own limit. Types are the base's: others change what the model answers.
ServingSpace every_serving(const Scenario& base, const std::vector<int>& devices,
                           const std::optional<ServingTraffic>& traffic);

std::int64_t size(const ServingSpace& space);
// strategy.data_parallel is expert_parallel, as in the engines that divide experts. Throws std::out_of_range.
struct ServingChoice {
  Scenario scenario;           // of one engine
  int devices = 1;             // of all engines
  std::int64_t sequences = 0;  // batch_size, as the space has it
  int devices_of_engine() const;
  // Groups of ranks that attend to sequences of their own, of all engines: each has its share of the load.
  int replicas() const;
};
ServingChoice candidate(const ServingSpace& space, std::int64_t index);

std::vector<Problem> problems(const ServingSpace& space);

struct ServingConstraints {
  double memory_share = 1;  // of each device's memory that the engine may know of
  Bytes memory_reserved;
  // Limits on a batch's mean time, or with traffic on the time that 90 % of the requests keep to.
  std::optional<Seconds> most_ttft, most_tpot;
  std::optional<double> least_tokens_per_second;  // of all devices together
  std::optional<double> most_usd_per_million_tokens;
  std::optional<double> most_kwh_per_million_tokens;
};
std::vector<Problem> problems(const ServingConstraints& constraints);

enum class ServingObjective { throughput, latency, money, energy };

struct ServingCandidate {
  std::int64_t index = 0;
  std::int32_t devices = 0;
  Seconds ttft, tpot;            // of a batch; of traffic the 90th percentiles
  Bytes memory;                  // of a device: the least with which it fits
  double tokens_per_second = 0;  // new ones, of all devices together
  double usd_per_million_tokens = 0, kwh_per_million_tokens = 0;

  double tokens_per_second_per_device() const { return tokens_per_second / devices; }
  double tokens_per_second_per_user() const { return tpot.value > 0 ? 1 / tpot.value : 0; }
  bool operator==(const ServingCandidate&) const = default;
};
// Less is better: device-seconds per token, seconds per later token (TPOT), USD or kWh per million tokens.
double cost(const ServingCandidate& candidate, ServingObjective objective);

struct ServingResult {
  std::int64_t looked_at = 0, legal = 0, evaluated = 0, fitting = 0;
  // Candidates by what refuses them first: a field, "memory", "requests_per_second" (more requests come than
  // the engines can serve), "most_ttft", ... looked_at = fitting + the sum of these.
  std::map<std::string, std::int64_t> refused;
  EnumArray<ServingObjective, std::vector<ServingCandidate>> best;
  // No other is at least as good in both TPOT and tokens/s per device, and better in one. Sorted by TPOT.
  std::vector<ServingCandidate> front;
  std::optional<ServingCandidate> smallest;  // of legal ones, the one that needs the least memory
};

struct ServingOptions {
  std::size_t most_kept = 100;  // of each objective
  std::int64_t begin = 0;
  std::optional<std::int64_t> end = {};
  std::function<void(std::int64_t done, std::int64_t total)> on_progress = {};
  std::stop_token stop = {};
};

// Throws std::invalid_argument with the first of problems().
ServingResult search(const ServingSpace& space, const std::optional<ServingTraffic>& traffic,
                     const ServingConstraints& constraints, const Tariff& tariff,
                     const Calibration* calibration, const ServingOptions& options = {});
void merge(ServingResult& into, const ServingResult& other, std::size_t most_kept);

// What the first token (the prompt) and a later one spend their time on. With traffic: for a batch of as many
// sequences as the scheduler ran on average.
struct ServingSpending {
  std::int64_t sequences = 1;  // of the batch
  CostBreakdown first_token, later_token;
};
ServingSpending spending(const ServingSpace& space, const std::optional<ServingTraffic>& traffic,
                         const ServingConstraints& constraints, std::int64_t index,
                         const Calibration* calibration);

}  // namespace sim
