// The program from its arguments: parses them, runs what they ask for and turns what went wrong into one
// sentence on stderr and an exit code.
#pragma once

namespace app::cli {

int run_command_line(int argc, char** argv);

}  // namespace app::cli
