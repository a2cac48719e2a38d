// Keeps loaded what other people's libraries load, as Open MPI its plug-ins, in builds under AddressSanitizer alone.
// LeakSanitizer names the steps of a stack by the libraries that are loaded when the process ends: what an unloaded
// plug-in kept has no name, and no suppression can meet it. This stands before the system's dlclose, and hands on the
// calls of this program itself.
#include <dlfcn.h>

extern "C" int dlclose(void* library) {
  static const auto close = reinterpret_cast<int (*)(void*)>(dlsym(RTLD_NEXT, "dlclose"));
  Dl_info here{}, caller{};
  dladdr(reinterpret_cast<void*>(&dlclose), &here);
  dladdr(__builtin_return_address(0), &caller);
  return caller.dli_fbase == here.dli_fbase ? close(library) : 0;
}
