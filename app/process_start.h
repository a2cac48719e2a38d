// What a process may be started with that would break it later.
#pragma once

namespace app {

// Standard streams that are closed are opened, so that no file is given their number: stdin is empty then,
// what goes to stdout still fails, and messages to stderr go nowhere. A file that reaches the limit of its
// size (RLIMIT_FSIZE) is an error of that write, not a signal that ends the process.
void settle_process();

}  // namespace app
