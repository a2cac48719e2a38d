// ridgepoint compare: two reports joined by operation.
#include "sim/report/compare.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <memory>

#include "app/cli/command.h"
#include "app/cli/comparison_output.h"
#include "app/cli/report_output.h"

namespace app::cli {

namespace {

struct CompareFlags {
  std::string a, b;
  Format format = Format::text;
};

ExitCode compare(const CompareFlags& flags) {
  const sim::Report a = read_report(flags.a), b = read_report(flags.b);
  const sim::Comparison comparison = sim::compare(a, b);
  fmt::print("{}", comparison_as(comparison, flags.format));
  return ExitCode::fine;
}

}  // namespace

void add_compare(CLI::App& program, Invocation& invocation) {
  const auto flags = std::make_shared<CompareFlags>();
  CLI::App* command = program.add_subcommand(
      "compare",
      describe("Compare two reports, joined by operation: predicted with measured, or before with after.",
               {"ridgepoint compare out/train.predicted.json out/train.measured.json",
                "ridgepoint compare before.json after.json --format md",
                "ridgepoint compare predicted.json run.ndjson --format csv"}));
  command->add_option("A", flags->a, "a report, or a run's events")->required()->type_name("FILE");
  command->add_option("B", flags->b, "the other")->required()->type_name("FILE");
  add_format(*command, flags->format, {Format::text, Format::json, Format::csv, Format::markdown});
  command->callback([flags, &invocation] { invocation.run = [flags] { return compare(*flags); }; });
}

}  // namespace app::cli
