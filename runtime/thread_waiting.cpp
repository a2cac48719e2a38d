#include "runtime/thread_waiting.h"

#include <unistd.h>

#include <cstdlib>

namespace runtime {

void restart_with_short_waiting(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY")) return;
  setenv("GOMP_SPINCOUNT", "1000", 1);  // some 40 us, longer than the pause between two operations
  execv("/proc/self/exe", argv);
}

}  // namespace runtime
