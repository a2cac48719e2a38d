#include "app/gui/jobs/waterfall.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "app/gui/legal.h"
#include "sim/cost/predict.h"
#include "sim/plan/kinds.h"
#include "sim/plan/legality.h"
#include "sim/report/metrics.h"
#include "sim/scenario/fields.h"

namespace app::gui {
namespace {

struct CauseOf {
  sim::StepPart part;
  Cause beyond_ideal;
};
// Parts whose rows compute something; the others are causes by themselves.
constexpr std::array<CauseOf, 4> kComputing = {{{sim::StepPart::compute, Cause::below_peak},
                                                {sim::StepPart::memory, Cause::below_bandwidth},
                                                {sim::StepPart::launch, Cause::launch},
                                                {sim::StepPart::host, Cause::host}}};
constexpr std::array<CauseOf, 4> kWaiting = {{{sim::StepPart::network, Cause::network},
                                              {sim::StepPart::bubble, Cause::bubble},
                                              {sim::StepPart::slowest, Cause::slowest},
                                              {sim::StepPart::other, Cause::other}}};

std::optional<std::size_t> computing_part(const sim::Row& row) {
  if (row.kind == sim::OpKind::receive) return std::nullopt;
  switch (row.bound) {
    case sim::Bound::compute:
      return 0;
    case sim::Bound::memory:
      return 1;
    case sim::Bound::launch:
      return 2;
    case sim::Bound::host:
      return 3;
    case sim::Bound::network:
    case sim::Bound::bubble:
      break;
  }
  return std::nullopt;
}

struct Change {
  std::string field;
  sim::Scenario scenario;
};

std::vector<Change> changes_of(const sim::Scenario& scenario) {
  std::vector<Change> changes;
  for (const sim::AnyField& field : sim::all_fields()) {
    if (field.label.empty() || (field.applies && !field.applies(scenario))) continue;
    const auto add = [&](const auto& change) {
      sim::Scenario other = scenario;
      change(other);
      // Another task is another question.
      if (field.same(scenario, other) || other.workload.task != scenario.workload.task) return;
      changes.push_back({field.path(), with_batch_following(scenario, other)});
    };
    switch (field.kind) {
      case sim::AnyField::Kind::number: {
        const double now = field.number(scenario);
        for (const double value : {now * 2, std::floor(now / 2)})
          if (value > 0) add([&](sim::Scenario& s) { field.set_number(s, value); });
        break;
      }
      case sim::AnyField::Kind::toggle:
        for (const char* value : {"on", "off", "true", "false"})
          add([&](sim::Scenario& s) { field.set(s, value); });
        break;
      case sim::AnyField::Kind::word:
        for (const std::string_view word : field.words)
          add([&](sim::Scenario& s) { field.set(s, std::string(word)); });
        break;
      case sim::AnyField::Kind::fraction:
      case sim::AnyField::Kind::words:
      case sim::AnyField::Kind::text:
        break;
    }
  }
  return changes;
}

}  // namespace

std::string_view name(Cause cause) {
  static constexpr std::array<std::string_view, kCauses> names = {"ideal, at the chip's peak",
                                                                  "memory traffic, at full bandwidth",
                                                                  "kernels below the peak",
                                                                  "memory below its bandwidth",
                                                                  "launch",
                                                                  "host",
                                                                  "recompute",
                                                                  "exposed communication",
                                                                  "pipeline bubble",
                                                                  "waiting for the slowest",
                                                                  "between operations"};
  return names[static_cast<std::size_t>(cause)];
}

Waterfall waterfall_of(const sim::Report& report) {
  struct Split {
    double ideal = 0, traffic = 0, recompute = 0, whole = 0;
  };
  std::array<Split, kComputing.size()> splits;
  const sim::Scenario& scenario = report.source.scenario;
  const double peak = scenario.hardware.peak_for(scenario.workload.dtype).value;
  const double bandwidth = scenario.hardware.memory_bandwidth.value;
  for (const sim::Row& row : report.rows) {
    const auto part = computing_part(row);
    if (!part) continue;
    Split& split = splits[*part];
    split.whole += row.duration.value;
    const double seconds = row.duration.value;
    if (row.phase == sim::Phase::recompute) {
      split.recompute += seconds;
      continue;
    }
    const double ideal = peak > 0 ? std::min(seconds, row.flops.value / peak) : 0;
    split.ideal += ideal;
    // Traffic that a cache answers would pass the bandwidth.
    if (row.bound == sim::Bound::memory && bandwidth > 0)
      split.traffic +=
          std::clamp(static_cast<double>(row.memory.value) / bandwidth - ideal, 0.0, seconds - ideal);
  }
  const sim::StepParts parts = sim::step_parts(report);
  Waterfall waterfall{};
  const auto at = [&](Cause cause) -> sim::Seconds& { return waterfall[static_cast<std::size_t>(cause)]; };
  for (std::size_t i = 0; i < kComputing.size(); ++i) {
    const Split& split = splits[i];
    const sim::Seconds time = parts[kComputing[i].part];
    if (!(split.whole > 0)) {
      at(kComputing[i].beyond_ideal) += time;
      continue;
    }
    const sim::Seconds ideal = time * (split.ideal / split.whole),
                       traffic = time * (split.traffic / split.whole),
                       again = time * (split.recompute / split.whole);
    at(Cause::ideal) += ideal;
    at(Cause::traffic) += traffic;
    at(Cause::recompute) += again;
    at(kComputing[i].beyond_ideal) += time - ideal - traffic - again;
  }
  for (const CauseOf& waiting : kWaiting) at(waiting.beyond_ideal) += parts[waiting.part];
  return waterfall;
}

Tornado tornado_of(const TornadoQuestion& question, const TornadoStudy::Course& course) {
  const auto rate_of = [&](const sim::Scenario& s) -> std::optional<std::pair<double, bool>> {
    if (!sim::validate(s).empty()) return std::nullopt;
    try {
      const sim::Report report = sim::predict(s, question.calibration.get());
      return std::pair(sim::tokens_per_second(report), sim::fits(report));
    } catch (const std::exception&) {
      return std::nullopt;  // what cannot be priced (its hardware lacks the type) is no change to make
    }
  };
  Tornado tornado;
  const auto now = rate_of(question.scenario);
  if (!now || !(now->first > 0)) return tornado;
  const std::vector<Change> changes = changes_of(question.scenario);
  std::map<std::string, TornadoBar> largest;
  for (std::size_t i = 0; i < changes.size() && !course.stopped(); ++i) {
    course.report(static_cast<std::int64_t>(i), static_cast<std::int64_t>(changes.size()), changes[i].field);
    const auto then = rate_of(changes[i].scenario);
    if (!then) continue;
    TornadoBar bar{differences(question.scenario, changes[i].scenario), changes[i].scenario,
                   then->first / now->first - 1, then->second};
    constexpr double kNoticeable = 0.001;
    if (bar.label.empty() || std::abs(bar.faster) < kNoticeable) continue;
    const auto known = largest.find(changes[i].field);
    if (known == largest.end() || std::abs(known->second.faster) < std::abs(bar.faster))
      largest.insert_or_assign(changes[i].field, std::move(bar));
  }
  for (auto& [field, bar] : largest) tornado.bars.push_back(std::move(bar));
  std::sort(tornado.bars.begin(), tornado.bars.end(),
            [](const TornadoBar& a, const TornadoBar& b) { return std::abs(a.faster) > std::abs(b.faster); });
  return tornado;
}

}  // namespace app::gui
