#include "app/cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "app/cli/command.h"
#include "app/cli/flags.h"
#include "app/cli/progress.h"
#include "sim/foreign_text.h"
#include "sim/report/events.h"

namespace app::cli {

namespace {

// A sub-command's description includes its examples. The program's list of commands shows only the sentence.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_subcommand(const CLI::App* command) const override {
    const std::string description = command->get_description();
    return fmt::format("  {:<12}{}\n", command->get_name(), description.substr(0, description.find('\n')));
  }
};

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// The known word nearest to one that the parser does not know; empty if none is near.
std::string nearest(const CLI::App& command, const std::string& word) {
  std::vector<std::string> candidates;
  for (const CLI::Option* option : command.get_options()) candidates.push_back(option->get_name());
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; }))
    candidates.push_back(sub->get_name());
  std::string best;
  std::size_t best_distance = word.size() / 2 + 1;
  for (const std::string& candidate : candidates)
    if (const std::size_t distance = edit_distance(word, candidate); distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  return best;
}

std::string explain(const CLI::App& program, const CLI::ParseError& error) {
  const auto typed = program.get_subcommands();
  const CLI::App& command = typed.empty() ? program : *typed.front();
  const std::string name = typed.empty() ? "ridgepoint" : "ridgepoint " + command.get_name();
  const std::vector<std::string> unknown = program.remaining(true);
  std::string text = error.what();
  if (!unknown.empty()) {
    const std::string word = unknown.front().substr(0, unknown.front().find('='));
    text = fmt::format("{} does not know {}", name, word);
    if (const std::string meant = nearest(command, word); !meant.empty())
      text += fmt::format("; did you mean {}?", meant);
  }
  return fmt::format("{}\n{} --help lists what there is", text, name);
}

int report_failure(const Failure& failure, bool stream) {
  if (stream) {
    const sim::Event event = sim::ErrorEvent{failure.message, static_cast<int>(failure.code)};
    std::puts(  // does not throw where stdout is closed
        sim::to_ndjson(event).c_str());
  }
  to_stderr(fmt::format("ridgepoint: {}\n", sim::visible(failure.message)));
  return static_cast<int>(failure.code);
}

// Output may still wait in a buffer. A result that did not arrive is no success.
int end_with(int code, bool stream) {
  errno = 0;
  std::cout.flush();
  const bool arrived = std::fflush(stdout) == 0 && std::cout.good() && std::ferror(stdout) == 0;
  if (arrived || code != static_cast<int>(ExitCode::fine)) return code;
  const std::string why = errno != 0 ? fmt::format(": {}", std::strerror(errno)) : "";
  return report_failure({ExitCode::device_error, "the result could not be written to stdout" + why}, stream);
}

int run(int argc, char** argv, Invocation& invocation) {
  CLI::App program(
      describe("Ridgepoint: what an LLM costs to train and to run, predicted beside measured.",
               {"ridgepoint                                                  the desktop",
                "ridgepoint tour                                             train, generate and compare, "
                "here and now",
                "ridgepoint predict --model llama-3.1-8b --hardware h100-sxm --seq-len 8k --dp 8 --zero 3",
                "ridgepoint generate --model smollm2-135m-instruct --prompt \"The ridge point is\"",
                "ridgepoint predict --help                                   more about a command"}),
      "ridgepoint");
  program.formatter(std::make_shared<HelpFormatter>());
  program.set_version_flag("--version", "ridgepoint " RIDGEPOINT_VERSION);
  program.require_subcommand(0, 1);
  std::vector<std::string> tables, lessons;
  program.add_option("--table", tables, "tables of measurements for the desktop's validation panel")
      ->type_name("FILE.csv");
  program.add_option("--lessons", lessons, "a folder of lessons for the desktop, beside the program's own")
      ->type_name("DIR");
  invocation.run = [&tables, &lessons] { return run_without_command(tables, lessons); };
  for (const auto add :
       {add_tour, add_predict, add_train, add_generate, add_compare, add_tokenize, add_screenshot, add_plan,
        add_bench, add_calibrate, add_measure, add_replay, add_validate, add_doctor, add_schema, add_lesson})
    add(program, invocation);

  try {
    program.parse(argc, argv);
    return end_with(static_cast<int>(invocation.run()), invocation.stream);
  } catch (const CLI::Success& help) {  // --help, --version
    return end_with(program.exit(help), false);
  } catch (const CLI::ParseError& error) {
    return report_failure({ExitCode::usage, explain(program, error)}, invocation.stream);
  }
}

}  // namespace

int run_command_line(int argc, char** argv) {
  Invocation invocation;
  try {
    return run(argc, argv, invocation);
  } catch (...) {
    return report_failure(failure_of(std::current_exception()), invocation.stream);
  }
}

}  // namespace app::cli
