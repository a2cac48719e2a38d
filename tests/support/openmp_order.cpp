// Tells ThreadSanitizer in which order OpenMP runs things. GCC's libgomp waits by its own instructions, which
// are not instrumented: what happens before a parallel region, in it and after it would look like races.
// These stand before libgomp's functions of the same names, in builds under ThreadSanitizer alone.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

namespace {

using Body = void (*)(void*);

struct Region {
  Body body;
  void* data;
  char begun, ended;  // addresses alone: what ThreadSanitizer calls two events
};

void ordered(void* pointer) {
  Region* const region = static_cast<Region*>(pointer);
  __tsan_acquire(&region->begun);
  region->body(region->data);
  __tsan_release(&region->ended);
}

template <class... Rest>
void run(const char* name, Body body, void* data, Rest... rest) {
  const auto real = reinterpret_cast<void (*)(Body, void*, Rest...)>(dlsym(RTLD_NEXT, name));
  Region region{body, data, 0, 0};
  __tsan_release(&region.begun);
  real(ordered, &region, rest...);
  __tsan_acquire(&region.ended);
}

}  // namespace

extern "C" {

void GOMP_parallel(Body body, void* data, unsigned threads, unsigned flags) {
  run("GOMP_parallel", body, data, threads, flags);
}

void GOMP_parallel_loop_nonmonotonic_dynamic(Body body, void* data, unsigned threads, long begin, long end,
                                             long step, long chunk, unsigned flags) {
  run("GOMP_parallel_loop_nonmonotonic_dynamic", body, data, threads, begin, end, step, chunk, flags);
}

}  // extern "C"
