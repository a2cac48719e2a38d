// Training scenarios drawn at random: models, hardware and software of all presets, and every field of the
// table (sim/scenario/fields.h).
#pragma once
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sim/cost/calibration_preset.h"
#include "sim/plan/legality.h"
#include "sim/scenario/preset.h"
#include "tests/sim/random_fields.h"

class RandomStrategies {
 public:
  explicit RandomStrategies(std::uint64_t seed) : random_(seed) {}

  sim::Scenario next() {
    while (true)
      if (std::optional<sim::Scenario> s = draw()) return *std::move(s);
  }

  const sim::Calibration* calibration(const std::string& hardware) {
    const auto [it, added] = calibrations_.try_emplace(hardware);
    if (added) it->second = sim::load_calibration_preset(hardware);
    return it->second ? &*it->second : nullptr;
  }

 private:
  // Loaded once each.
  template <class Part, class Load>
  const Part& one_of(sim::PresetKind kind, std::map<std::string, Part>& known, Load load) {
    const std::vector<std::string> names = sim::preset_names(kind);
    const std::string& name = names[random_() % names.size()];
    const auto [it, added] = known.try_emplace(name);
    if (added) it->second = load(name);
    return it->second;
  }

  // Steps with so many actions that a prediction takes long are not drawn.
  static bool is_short(const sim::Scenario& s) {
    constexpr std::int64_t kMostPasses = 500, kMostLayerPasses = 3000;
    const std::int64_t micro_batches =
        s.workload.global_batch_size / s.workload.micro_batch_size / s.strategy.data_parallel;
    return micro_batches * s.strategy.pipeline_parallel <= kMostPasses &&
           micro_batches * s.model.num_hidden_layers <= kMostLayerPasses;
  }

  std::optional<sim::Scenario> draw() {
    sim::Scenario s;
    s.model = one_of(sim::PresetKind::model, models_, sim::load_model_preset);
    s.hardware = one_of(sim::PresetKind::hardware, hardware_, sim::load_hardware_preset);
    s.implementation =
        one_of(sim::PresetKind::implementation, implementations_, sim::load_implementation_preset);
    if (!s.hardware.has_peak_for(s.workload.dtype)) s.workload.dtype = sim::DType::fp16;
    s.workload.seq_len = std::int64_t{512} << random_() % 6;
    s.workload.global_batch_size = std::int64_t{1 + static_cast<std::int64_t>(random_() % 6)}
                                   << random_() % 10;
    if (!sim::validate(s).empty()) return std::nullopt;
    constexpr int kChanges = 80;  // of each field a few
    vary_fields(
        random_, s, kChanges,
        [](const sim::AnyField& f) {
          return f.path() != "workload.task" && f.path() != "workload.measure_noise";
        },
        [](const sim::Scenario& changed) { return sim::validate(changed).empty() && is_short(changed); });
    if (!is_short(s)) return std::nullopt;
    // Last: it goes with one device alone, and would keep the other fields from more.
    sim::Scenario measured = s;
    measured.workload.measure_noise = random_() % 2 == 0;
    return sim::validate(measured).empty() ? measured : s;
  }

  std::mt19937_64 random_;
  std::map<std::string, sim::Model> models_;
  std::map<std::string, sim::Hardware> hardware_;
  std::map<std::string, sim::Implementation> implementations_;
  std::map<std::string, std::optional<sim::Calibration>> calibrations_;
};

// What its fields of the table are set to, where that is not what they are by default.
inline std::string described(const sim::Scenario& s) {
  static const sim::Scenario plain;
  std::string text = s.model.name + " " + s.hardware.name + " " + s.implementation.name;
  for (const sim::AnyField& f : sim::all_fields())
    if (!f.same(s, plain)) text.append(" ").append(f.path()).append("=").append(f.text(s));
  return text;
}

// The error of an estimate, beside what it is of; both may be without end, where a link is missing.
inline double error_of(double estimated, double predicted) {
  return estimated == predicted ? 0 : std::abs(estimated / predicted - 1);
}

// Kendall's tau of two rankings of the same things: pairs that agree less those that do not, of all pairs.
inline double kendalls_tau(const std::vector<double>& a, const std::vector<double>& b) {
  std::int64_t agree = 0, pairs = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = i + 1; j < a.size(); ++j) {
      const double product = (a[i] - a[j]) * (b[i] - b[j]);
      agree += product > 0 ? 1 : product < 0 ? -1 : 0;
      ++pairs;
    }
  return pairs > 0 ? static_cast<double>(agree) / static_cast<double>(pairs) : 1;
}

// The share of values up to a limit.
inline double share_within(const std::vector<double>& values, double limit) {
  const auto within = std::count_if(values.begin(), values.end(), [limit](double v) { return v <= limit; });
  return static_cast<double>(within) / static_cast<double>(values.size());
}
