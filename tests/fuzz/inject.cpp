// Loaded before a program (LD_PRELOAD): the call number RIDGEPOINT_FAIL_AT of the function
// RIDGEPOINT_FAIL_CALL fails as the system lets it fail, and every later one works. Calls are counted from 1,
// over all threads.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

// Read without allocating: malloc itself is among what fails.
struct Plan {
  const char* call = std::getenv("RIDGEPOINT_FAIL_CALL");
  long at = std::getenv("RIDGEPOINT_FAIL_AT") ? std::atol(std::getenv("RIDGEPOINT_FAIL_AT")) : 0;
};

bool fails(const char* call) {
  static const Plan plan;
  static std::atomic<long> calls{0};
  if (plan.call == nullptr || std::strcmp(call, plan.call) != 0) return false;
  return ++calls == plan.at;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

void* __libc_malloc(std::size_t size);

void* malloc(std::size_t size) {
  if (fails("malloc")) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_malloc(size);
}

ssize_t read(int file, void* into, std::size_t count) {
  static const auto real = next<ssize_t (*)(int, void*, std::size_t)>("read");
  if (fails("read")) {
    errno = EIO;
    return -1;
  }
  return real(file, into, count);
}

ssize_t write(int file, const void* from, std::size_t count) {
  static const auto real = next<ssize_t (*)(int, const void*, std::size_t)>("write");
  if (fails("write")) {
    errno = ENOSPC;
    return -1;
  }
  return real(file, from, count);
}

int fsync(int file) {
  static const auto real = next<int (*)(int)>("fsync");
  if (fails("fsync")) {
    errno = EIO;
    return -1;
  }
  return real(file);
}

int rename(const char* from, const char* to) {
  static const auto real = next<int (*)(const char*, const char*)>("rename");
  if (fails("rename")) {
    errno = EACCES;
    return -1;
  }
  return real(from, to);
}

void* mmap(void* where, std::size_t length, int protection, int flags, int file, off_t offset) {
  static const auto real = next<void* (*)(void*, std::size_t, int, int, int, off_t)>("mmap");
  if (fails("mmap")) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return real(where, length, protection, flags, file, offset);
}

void* dlopen(const char* name, int flags) {
  static const auto real = next<void* (*)(const char*, int)>("dlopen");
  return fails("dlopen") ? nullptr : real(name, flags);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*begin)(void*),
                   void* argument) {
  static const auto real =
      next<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  return fails("pthread_create") ? EAGAIN : real(thread, attributes, begin, argument);
}

}  // extern "C"
