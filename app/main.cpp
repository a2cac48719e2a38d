#include "app/cli/command_line.h"
#include "app/end_early.h"
#include "app/process_start.h"
#include "runtime/library_settings.h"

int main(int argc, char** argv) {
  runtime::set_up_libraries(argv);
  app::settle_process();
  const int code = app::cli::run_command_line(argc, argv);
  app::main_has_ended();
  return code;
}
