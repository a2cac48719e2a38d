// The sub-commands, one file each. Each adds itself to the parser. The one that was typed puts the function
// that runs it into `invocation`.
#pragma once
#include <functional>
#include <string>

#include "app/cli/exit_code.h"

namespace CLI {
class App;
}

namespace app::cli {

struct Invocation {
  std::function<ExitCode()> run;
  bool stream = false;  // stdout carries events, so a failure is told there too
};

void add_predict(CLI::App& program, Invocation& invocation);
void add_train(CLI::App& program, Invocation& invocation);
void add_generate(CLI::App& program, Invocation& invocation);
void add_compare(CLI::App& program, Invocation& invocation);
void add_tokenize(CLI::App& program, Invocation& invocation);
void add_tour(CLI::App& program, Invocation& invocation);
void add_screenshot(CLI::App& program, Invocation& invocation);
void add_bench(CLI::App& program, Invocation& invocation);
void add_calibrate(CLI::App& program, Invocation& invocation);
void add_validate(CLI::App& program, Invocation& invocation);
void add_doctor(CLI::App& program, Invocation& invocation);
void add_plan(CLI::App& program, Invocation& invocation);
void add_schema(CLI::App& program, Invocation& invocation);
void add_lesson(CLI::App& program, Invocation& invocation);
void add_measure(CLI::App& program, Invocation& invocation);
void add_replay(CLI::App& program, Invocation& invocation);

// Runs the program without a sub-command: the desktop, or the tour where there is no display. `tables` are
// files of measurements and `lessons` are folders of lessons; both are for the desktop.
ExitCode run_without_command(const std::vector<std::string>& tables, const std::vector<std::string>& lessons);

}  // namespace app::cli
