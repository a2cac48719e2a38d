#include "app/cli/command_line.h"
#include "runtime/thread_waiting.h"

int main(int argc, char** argv) {
  runtime::restart_with_short_waiting(argv);
  return app::cli::run_command_line(argc, argv);
}
