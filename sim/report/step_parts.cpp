#include "sim/report/step_parts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "sim/format.h"
#include "sim/report/metrics.h"

namespace sim {
namespace {

// The part for a row that compute waits for. Exchanges are handled apart, as they may run beside compute.
StepPart part_of(const Row& row) {
  if (row.exposed) return StepPart::network;
  if (row.kind == OpKind::receive) return StepPart::bubble;
  switch (row.bound) {
    case Bound::compute:
      return StepPart::compute;
    case Bound::memory:
      return StepPart::memory;
    case Bound::launch:
      return StepPart::launch;
    case Bound::host:
      return StepPart::host;
    case Bound::network:
      return StepPart::network;
    case Bound::bubble:
      return StepPart::bubble;
  }
  return StepPart::other;
}

// The totals of a rank's rows.
struct RankRows {
  StepParts parts;             // without exchanges
  Seconds busy;                // the sum of those parts
  Seconds exposed, exchanged;  // exchanges: as far as rows say what is exposed, and the others, hidden or not
};

std::map<std::int32_t, RankRows> rows_by_rank(const Report& report) {
  std::map<std::int32_t, RankRows> ranks;
  for (const Row& row : report.rows) {
    RankRows& of_rank = ranks[row.rank];
    const StepPart part = part_of(row);
    if (part == StepPart::network) {
      (row.exposed ? of_rank.exposed : of_rank.exchanged) += row.exposed.value_or(row.duration);
    } else {
      of_rank.parts.seconds[part] += row.duration;
      of_rank.busy += row.duration;
    }
  }
  return ranks;
}

// The largest exposed share of the exchanges whose rows do not say how much is exposed. All stages exchange
// alike. A stage that ends early has more room than it exposes, so the one with the least room decides.
double exposed_at_most(const Report& report, const std::map<std::int32_t, RankRows>& ranks) {
  const Seconds step = step_time(report) - report.waiting_for_slowest;
  double least = 1;
  for (const auto& [rank, rows] : ranks)
    if (rows.exchanged.value > 0)
      least = std::min(least, std::max(0.0, (step - rows.busy - rows.exposed) / rows.exchanged));
  return least;
}

StepParts parts_of_rank(const Report& report, RankRows rows, double most_exposed) {
  StepParts& parts = rows.parts;
  EnumArray<StepPart, Seconds>& at = parts.seconds;
  at[StepPart::network] = rows.exposed;
  const Seconds busy = rows.busy + rows.exposed, exchanged = rows.exchanged;
  const Seconds step = step_time(report), slowest = report.waiting_for_slowest;
  const Seconds rest = step - slowest - busy;
  if (rest.value <= 0) {
    // Rows that overlap add up to more than the step, so each is scaled in proportion.
    const Seconds unknown = step.value > 0 ? Seconds{} : exchanged;
    at[StepPart::network] += unknown;
    const Seconds all = busy + unknown;
    const double scale = step.value > 0 && all.value > 0 ? (step - slowest) / all : 1;
    for (Seconds& part : at) part = part * scale;
  } else {
    const Seconds unknown = std::min(rest, exchanged * most_exposed);
    at[StepPart::network] += unknown;
    const bool staged = report.source.scenario.strategy.pipeline_parallel > 1;
    at[staged ? StepPart::bubble : StepPart::other] += rest - unknown;
  }
  at[StepPart::slowest] = slowest;
  for (const Seconds part : at) parts.whole += part;
  return parts;
}

std::string whole_percent(double fraction) {
  return std::to_string(std::lround(fraction * 100)) + " %";
}

// The totals of one family of operations, over the rows of a part.
struct FamilyTotal {
  std::string_view name;
  double seconds = 0, flops = 0, memory = 0, network = 0;
  std::int64_t count = 0;
};
FamilyTotal longest_family(const Report& report, StepPart part) {
  std::map<std::string_view, FamilyTotal> families;
  for (const Row& row : report.rows) {
    if (part_of(row) != part) continue;
    FamilyTotal& sum = families[name(info(row.kind).family)];
    sum.name = name(info(row.kind).family);
    sum.seconds += row.duration.value;
    sum.flops += row.flops.value;
    sum.memory += static_cast<double>(row.memory.value);
    sum.network += static_cast<double>(row.network.value);
    sum.count += row.count;
  }
  const auto longest =
      std::ranges::max_element(families, {}, [](const auto& family) { return family.second.seconds; });
  return longest == families.end() ? FamilyTotal{} : longest->second;
}

}  // namespace

StepParts step_parts(const Report& report, std::optional<std::int32_t> rank) {
  const std::map<std::int32_t, RankRows> ranks = rows_by_rank(report);
  const double most_exposed = exposed_at_most(report, ranks);
  StepParts mean;
  if (rank) {
    const auto found = ranks.find(*rank);
    return found == ranks.end() ? mean : parts_of_rank(report, found->second, most_exposed);
  }
  for (const auto& [one, rows] : ranks) {
    const StepParts parts = parts_of_rank(report, rows, most_exposed);
    const double weight = 1.0 / static_cast<double>(ranks.size());
    for (const StepPart p : kAll<StepPart>) mean.seconds[p] += parts[p] * weight;
    mean.whole += parts.whole * weight;
  }
  return mean;
}

std::vector<PartShare> part_shares(const Report& report) {
  const StepParts parts = step_parts(report);
  std::vector<PartShare> shares;
  for (const StepPart p : kAll<StepPart>)
    if (parts[p].value > 0) shares.push_back({p, parts.share(p)});
  std::ranges::stable_sort(shares, std::greater<>{}, &PartShare::share);
  return shares;
}

std::string bottleneck_sentence(const Report& report) {
  const std::vector<PartShare> shares = part_shares(report);
  if (shares.empty()) return "No operation has been priced or measured yet.";
  const StepPart part = shares.front().part;
  const Scenario& s = report.source.scenario;
  const std::string whole = s.workload.task == Task::train ? "the step" : "the generation";
  const std::string share = whole_percent(shares.front().share) + " of " + whole;

  // The longest family keeps its share: what it takes of the part's time, it also takes of the whole.
  const FamilyTotal family = longest_family(report, part);
  double of_rows = 0;
  for (const Row& row : report.rows)
    if (part_of(row) == part) of_rows += row.duration.value;
  const double of_part = of_rows > 0 ? family.seconds / of_rows : 0;
  const std::string is_family =
      whole_percent(shares.front().share * of_part) + " of " + whole + " is " + std::string(family.name);
  const auto reached = [&](double amount, double rate) {
    const double most = family.seconds * rate;
    return whole_percent(most > 0 ? amount / most : 0);
  };
  switch (part) {
    case StepPart::compute: {
      const bool known = s.hardware.has_peak_for(s.workload.dtype);
      const double peak = known ? s.hardware.peak_for(s.workload.dtype).value : 0;
      return "Bound by arithmetic: " + is_family + " at " + reached(family.flops, peak) +
             " of what the chip can do.";
    }
    case StepPart::memory:
      return "Bound by memory bandwidth: " + is_family + " at " +
             reached(family.memory, s.hardware.memory_bandwidth.value) + " of what the memory can do.";
    case StepPart::launch:
      return "Bound by launches: " + is_family + ", " + format_count(family.count) +
             " operations so short that starting them takes most of their time.";
    case StepPart::network:
      return "Bound by the network: " + share + " is communication that compute waits for, at " +
             reached(family.network, s.hardware.node_link.value) + " of what the links can do.";
    case StepPart::bubble: {
      const std::int64_t sequences = s.workload.micro_batch_size * s.strategy.data_parallel;
      const std::int64_t micro_batches = sequences > 0 ? s.workload.global_batch_size / sequences : 0;
      return "Bound by the pipeline: " + share + " its stages wait for each other; " +
             format_count(micro_batches) +
             (micro_batches == 1 ? " micro-batch feeds " : " micro-batches feed ") +
             format_count(s.strategy.pipeline_parallel) + " stages.";
    }
    case StepPart::host:
      return "Bound by the host: " + is_family + ", in the host's memory or on the way there.";
    case StepPart::slowest:
      return "Bound by the slowest device: " + share + " the others wait for it.";
    case StepPart::other:
      return "Bound by what no operation accounts for: " + share + " passes between operations.";
  }
  return {};
}

}  // namespace sim
