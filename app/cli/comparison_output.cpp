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

// What the plan asks for, and what the process holds beside it, which no plan knows.
struct Memory {
  sim::Bytes planned, platform;
};

Memory memory_of(const sim::Report& report) {
  Memory memory;
  for (const sim::MemoryLine& line : report.memory)
    if (line.rank == 0 && line.category != sim::kHostMemory)
      (line.category.starts_with("platform") ? memory.platform : memory.planned) += line.bytes;
  return memory;
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
  const Memory memory_a = memory_of(comparison.a), memory_b = memory_of(comparison.b);
  text += fmt::format("memory: {} {}, {} {}{}", names.a, sim::format(memory_a.planned), names.b,
                      sim::format(memory_b.planned),
                      memory_a.planned == memory_b.planned ? ": equal to the byte" : "");
  const sim::Bytes platform = memory_a.platform + memory_b.platform;
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
