#include "runtime/library_settings.h"

#include <unistd.h>

#include <cstdlib>

#include "kernels/blas.h"

namespace runtime {

void set_up_libraries(char** argv) {
  kernels::cpu::choose_blas_instructions();
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY")) return;
  setenv("GOMP_SPINCOUNT", "1000", 1);  // some 40 us, longer than the pause between two operations
  execv("/proc/self/exe", argv);
}

}  // namespace runtime
