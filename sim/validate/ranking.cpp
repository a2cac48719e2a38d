#include "sim/validate/ranking.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "sim/quantile.h"
#include "sim/validate/row.h"

namespace sim {
namespace {

// Fewer strategies are no choice to speak of.
constexpr std::size_t kFewest = 5;

struct Configuration {
  std::size_t row = 0;
  double predicted = 0, measured = 0;  // seconds a token and GPU
  bool fits = true;                    // as predicted
};

bool predicted_to_fit(const ValidatedRow& row) {
  return std::ranges::none_of(row.predictions, [](const Prediction& p) {
    return p.column == kOutcomeColumn && p.words == kDoesNotFit;
  });
}

std::optional<RankedGroup> ranked(const std::vector<Configuration>& group) {
  if (group.size() < kFewest) return std::nullopt;
  const auto chosen = std::ranges::min_element(group, [](const Configuration& a, const Configuration& b) {
    return a.fits != b.fits ? a.fits : a.predicted < b.predicted;
  });
  if (!chosen->fits) return std::nullopt;
  const auto best = std::ranges::min_element(group, {}, &Configuration::measured);
  RankedGroup result;
  result.configurations = group.size();
  for (std::size_t i = 0; i < group.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const double sign = (group[i].predicted - group[j].predicted) * (group[i].measured - group[j].measured);
      result.balance += sign > 0 ? 1 : sign < 0 ? -1 : 0;
      ++result.pairs;
    }
  result.chosen = chosen->row;
  result.best = best->row;
  result.lost = chosen->measured / best->measured - 1;
  return result;
}

}  // namespace

std::vector<RankedGroup> rank(const CsvTable& table, const Validation& validation) {
  const auto model = table.column("model_name"), gpus = table.column("num_gpus"),
             batch = table.column("global_batch");
  if (!model || !gpus) return {};

  std::map<std::pair<int, std::string>, std::vector<Configuration>> configurations;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const std::optional<double> devices = number_in(table.rows[row][*gpus]);
    // Rates are comparable between global batches; times are not.
    const auto rate = compare_row(table, row, validation, "tokens_per_s_per_gpu");
    if (!rate || !devices || (batch && table.rows[row][*batch].empty())) continue;
    configurations[{static_cast<int>(*devices), table.rows[row][*model]}].push_back(
        {row, 1 / rate->predicted, 1 / rate->measured, predicted_to_fit(validation.rows[row])});
  }
  std::vector<RankedGroup> groups;
  for (const auto& [key, of_group] : configurations)
    if (std::optional<RankedGroup> group = ranked(of_group)) {
      std::tie(group->gpus, group->model) = key;
      groups.push_back(*std::move(group));
    }
  return groups;
}

RankingSummary summarize(std::span<const RankedGroup> groups) {
  RankingSummary summary;
  if (groups.empty()) return summary;
  double balance = 0;
  std::vector<double> lost;
  for (const RankedGroup& group : groups) {
    summary.configurations += group.configurations;
    summary.pairs += group.pairs;
    balance += group.balance;
    summary.lost_mean += group.lost / static_cast<double>(groups.size());
    lost.push_back(group.lost);
  }
  summary.groups = groups.size();
  summary.tau = balance / static_cast<double>(summary.pairs);
  summary.lost_median = quantile(std::move(lost), 0.5);
  return summary;
}

std::map<int, RankingSummary> summarize_by_gpus(std::span<const RankedGroup> groups) {
  std::map<int, std::vector<RankedGroup>> of_gpus;
  for (const RankedGroup& group : groups) of_gpus[group.gpus].push_back(group);
  std::map<int, RankingSummary> summaries;
  for (const auto& [gpus, of_one] : of_gpus) summaries[gpus] = summarize(of_one);
  return summaries;
}

}  // namespace sim
