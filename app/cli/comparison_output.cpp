#include "app/cli/comparison_output.h"

#include <fmt/format.h>

#include "sim/format.h"
#include "sim/report/metrics.h"

namespace app::cli {

namespace {

// What a report calls itself in a sentence about two: its kind, or "A" and "B" where both are of one kind.
struct Names {
  std::string a, b;
  explicit Names(const sim::Comparison& comparison)
      : a(sim::name(comparison.a.source.kind)), b(sim::name(comparison.b.source.kind)) {
    if (a != b) return;
    a = "A's";
    b = "B's";
  }
};

}  // namespace

std::string join_sentence(const sim::Comparison& comparison) {
  const Names names(comparison);
  return fmt::format("{} of {} {} operations are joined with {} ones, {} of {} the reverse.",
                     comparison.joined, comparison.joined + comparison.only_b, names.b, names.a,
                     comparison.joined, comparison.joined + comparison.only_a);
}

std::string comparison_summary(const sim::Comparison& comparison) {
  const Names names(comparison);
  const sim::Seconds a = sim::step_time(comparison.a), b = sim::step_time(comparison.b);
  const sim::Bytes memory_a = sim::peak_memory(comparison.a), memory_b = sim::peak_memory(comparison.b);
  const bool training = comparison.a.source.scenario.workload.task == sim::Task::train;
  return fmt::format("{}\n{}: {} {}, {} {}, ratio {:.2f}\npeak memory: {} {}, {} {}\n",
                     join_sentence(comparison), training ? "step" : "generation", names.a, sim::format(a),
                     names.b, sim::format(b), b / a, names.a, sim::format(memory_a), names.b,
                     sim::format(memory_b));
}

std::string comparison_as(const sim::Comparison& comparison, Format format) {
  switch (format) {
    case Format::text:
      return sim::to_text(comparison) + '\n' + comparison_summary(comparison);
    case Format::json:
      return sim::to_json(comparison) + '\n';
    case Format::csv:
      return sim::to_csv(comparison);
    case Format::markdown:
      return sim::to_markdown(comparison);
  }
  return {};
}

}  // namespace app::cli
