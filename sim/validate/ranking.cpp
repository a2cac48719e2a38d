#include "sim/validate/ranking.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace sim {
namespace {

// Fewer are no choice to speak of.
constexpr std::size_t kFewest = 5;

struct Configuration {
  double predicted = 0, measured = 0;  // seconds a token and GPU, up to a common factor
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

RankingSummary rank(const CsvTable& table, const Validation& validation) {
  const auto column = [&](std::string_view name) {
    return static_cast<std::size_t>(std::find(table.header.begin(), table.header.end(), name) -
                                    table.header.begin());
  };
  RankingSummary summary;
  const std::size_t model = column("model_name"), gpus = column("num_gpus");
  if (model == table.header.size() || gpus == table.header.size()) return summary;

  std::map<std::pair<std::string, std::string>, std::vector<Configuration>> groups;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    // Rates are comparable between global batches; times are not.
    const auto rate = compare_row(table, row, validation, "tokens_per_s_per_gpu");
    if (!rate) continue;
    groups[{table.rows[row][model], table.rows[row][gpus]}].push_back(
        {1 / rate->predicted, 1 / rate->measured});
  }
  double balance = 0;
  std::vector<double> lost;
  for (const auto& [key, group] : groups) {
    if (group.size() < kFewest) continue;
    for (std::size_t i = 0; i < group.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) {
        const double sign =
            (group[i].predicted - group[j].predicted) * (group[i].measured - group[j].measured);
        balance += sign > 0 ? 1 : sign < 0 ? -1 : 0;
        ++summary.pairs;
      }
    const auto by = [&](double Configuration::*time) {
      return std::min_element(group.begin(), group.end(),
                              [time](const auto& a, const auto& b) { return a.*time < b.*time; });
    };
    lost.push_back(by(&Configuration::predicted)->measured / by(&Configuration::measured)->measured - 1);
  }
  summary.groups = lost.size();
  if (lost.empty()) return summary;
  summary.tau = balance / static_cast<double>(summary.pairs);
  summary.lost_mean = std::accumulate(lost.begin(), lost.end(), 0.0) / static_cast<double>(lost.size());
  summary.lost_median = median(std::move(lost));
  return summary;
}

}  // namespace sim
