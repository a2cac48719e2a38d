// The whole program: parses its arguments, runs what they ask for and turns an error into one sentence on
// stderr and an exit code.
#pragma once

namespace app::cli {

int run_command_line(int argc, char** argv);

}  // namespace app::cli
