// Repairs conditions at the start of a process that would break it later.
#pragma once

namespace app {

// Opens standard streams that are closed, so that no file gets their number: stdin is then empty, writes to
// stdout still fail, and messages to stderr go nowhere. When a file reaches the size limit (RLIMIT_FSIZE),
// the write fails; no signal ends the process.
void settle_process();

}  // namespace app
