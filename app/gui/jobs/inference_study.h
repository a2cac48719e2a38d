// Serving the scenario's model: what the inference panel shows, computed off the interface's thread.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cost/calibration.h"
#include "sim/report/report.h"
#include "sim/serving/served_batch.h"
#include "sim/serving/simulation.h"

namespace app::gui {

// What is asked beside the scenario. 0 and "" leave it to the scenario, or to what suits it.
struct InferenceChoices {
  std::string engine = {};              // implementation preset; taken where the scenario's does not serve
  std::int64_t sequences = 0;           // in the cache
  std::int64_t context = 0;             // tokens of a sequence, where latency is set against throughput
  double requests_per_second = 0;       // of traffic
  std::int64_t prompt = 0, output = 0;  // tokens of a request, of traffic
  std::string draft = {};               // model preset; "": one layer of the model, as a prediction head
  bool operator==(const InferenceChoices&) const = default;
};

struct InferenceQuestion {
  sim::Scenario scenario;
  std::shared_ptr<const sim::Calibration> calibration;  // of the scenario's hardware; may be null
  InferenceChoices choices;
  bool operator==(const InferenceQuestion&) const = default;
};

// What an engine's time goes to, by sim::CostKind.
inline constexpr std::array<std::string_view, sim::kCount<sim::CostKind>> kKindNames = {
    "matrix products", "attention", "small kernels", "collectives", "host"};

// Prefill, or a step of decode.
struct PhaseStudy {
  sim::CostBreakdown time;
  double of_peak = 0, of_bandwidth = 0;  // MFU; share of the memory bandwidth
  sim::Bound bound{};                    // what takes longest: arithmetic, memory, the host, the network
};

// A device's KV cache when each sequence has so many tokens, in bytes.
struct CachePoint {
  double tokens = 0;
  double used = 0;        // by tokens
  double paged = 0;       // in whole blocks
  double contiguous = 0;  // for the longest sequence from the start
};

struct CacheStudy {
  std::int64_t sequences = 1, longest = 1, block = 0;  // block: tokens; 0: the engine's cache is contiguous
  double weights = 0, reserved = 0, device = 0;        // bytes
  double limit = 0;                                    // up to where the engine fills the device
  std::vector<CachePoint> points;                      // by tokens
  std::optional<double> full_at;                       // tokens a sequence at which the cache is full
};

// A batch that decodes.
struct RatePoint {
  std::int64_t batch = 1;
  sim::Seconds tpot;
  double per_user = 0, per_device = 0;  // tokens a second
  bool fits = true;                     // its cache beside the weights
};
struct RateCurve {
  std::int64_t context = 0;
  std::vector<RatePoint> points;  // by batch
};

inline constexpr std::array<double, 3> kShares = {0.5, 0.9, 0.99};
struct TrafficStudy {
  std::string refusal;         // why there can be none; the rest is empty then
  double most_per_second = 0;  // requests, that the engine could answer for ever
  double requests_per_second = 0;
  std::int64_t prompt = 0, output = 0;
  std::int64_t blocks = 0, max_sequences = 0;
  sim::Simulation run;
  std::array<sim::Seconds, kShares.size()> ttft{}, tpot{};
};

struct SpeculationStudy {
  std::string refusal;  // why the draft cannot be; the rest is empty then
  std::string draft;
  double sequences = 1;
  sim::Seconds draft_step, plain_step;
  std::vector<sim::Seconds> verify;  // [i]: a step of the model over i + 2 tokens a sequence

  double speedup(double acceptance, std::int64_t length) const;
  std::int64_t best_length(double acceptance) const;
};
inline constexpr std::int64_t kLongestDraft = 12;

struct InferenceStudy {
  sim::Scenario scenario;  // as it is served
  std::optional<sim::ServedBatch> served;
  PhaseStudy prefill, decode;
  CacheStudy cache;
  std::vector<RateCurve> rates;  // of the context that was asked for first, then others to compare with
  TrafficStudy traffic;
  SpeculationStudy speculation;
};

// The implementation that serves the scenario: its own, where that serves; else the one that was chosen.
std::string engine_of(const sim::Scenario& scenario, const std::string& chosen);
// The scenario as an engine would serve it: itself, if it is generation by an engine. A training scenario
// becomes: the model on as many tensor-parallel devices as its weights need.
sim::Scenario as_served(const sim::Scenario& scenario, const std::string& chosen);

// Answers questions one after the other, and keeps the prices of the last scenario.
class InferenceStudies {
 public:
  // Throws where it cannot be served.
  InferenceStudy study(const InferenceQuestion& question);

 private:
  SpeculationStudy speculation(const std::string& draft, double sequences, double context);

  sim::Scenario scenario_;
  std::shared_ptr<const sim::Calibration> calibration_;
  std::unique_ptr<sim::IterationCost> cost_;
  std::string draft_name_;
  std::unique_ptr<sim::IterationCost> draft_;
};

}  // namespace app::gui
