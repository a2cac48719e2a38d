#include "app/cli/comparison_output.h"

#include <fmt/format.h>

#include "sim/format.h"
#include "sim/report/metrics.h"

namespace app::cli {

namespace {

// How a sentence about two reports names each: by its kind, or "A" and "B" where both are of one kind.
struct Names {
  std::string a, b;
  explicit Names(const sim::Comparison& comparison)
      : a(sim::name(comparison.a.source.kind)), b(sim::name(comparison.b.source.kind)) {
    if (a != b) return;
    a = "A's";
    b = "B's";
  }
};

// The memory that the process holds beside the plan.
sim::Bytes platform_memory(const sim::Report& report) {
  sim::Bytes sum;
  for (const sim::MemoryLine& line : report.memory)
    if (line.rank == 0 && line.category.starts_with("platform")) sum += line.bytes;
  return sum;
}

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
  const bool training = comparison.a.source.scenario.workload.task == sim::Task::train;
  std::string text = join_sentence(comparison) + '\n';
  if (a.value > 0)
    text += fmt::format("{}: {} {}, {} {}, ratio {:.2f}\n", training ? "step" : "generation", names.a,
                        sim::format(a), names.b, sim::format(b), b / a);
  const sim::Bytes memory_a = sim::planned_memory(comparison.a), memory_b = sim::planned_memory(comparison.b);
  text += fmt::format("memory: {} {}, {} {}{}", names.a, sim::format(memory_a), names.b,
                      sim::format(memory_b), memory_a == memory_b ? ": equal to the byte" : "");
  const sim::Bytes platform = platform_memory(comparison.a) + platform_memory(comparison.b);
  if (platform.value > 0) text += fmt::format("; the process holds {} beside it", sim::format(platform));
  return text + '\n';
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
