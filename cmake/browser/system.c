// What musl declares and Emscripten's page does not have. Nothing of it is needed there: who asks is told so, and does without.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int nothing(void) {
  errno = ENOSYS;
  return -1;
}

void __dl_seterr(const char* why, ...);  // musl's: what dlerror() says

// A page loads no libraries,
void* dlopen(const char* file, int mode) {
  (void)file, (void)mode;
  __dl_seterr("a page loads no libraries");
  return NULL;
}
void* dlsym(void* library, const char* name) {
  (void)library, (void)name;
  __dl_seterr("a page loads no libraries");
  return NULL;
}
int dlclose(void* library) {
  (void)library;
  return 0;
}

// starts no processes, has no files that another could hold (Emscripten's own of both come along with others of its stubs),
__attribute__((weak)) pid_t fork(void) {
  return nothing();
}
__attribute__((weak)) int flock(int file, int operation) {
  (void)file, (void)operation;
  return 0;
}
int sched_getaffinity(pid_t process, size_t size, cpu_set_t* cpus) {
  (void)process, (void)size, (void)cpus;
  return nothing();
}
int sched_setaffinity(pid_t process, size_t size, const cpu_set_t* cpus) {
  (void)process, (void)size, (void)cpus;
  return nothing();
}
int prctl(int option, ...) {
  (void)option;
  return nothing();
}
int pthread_kill(pthread_t thread, int signal) {
  (void)thread, (void)signal;
  return ENOSYS;
}

// and exchanges nothing with ranks.
ssize_t send(int socket, const void* data, size_t size, int flags) {
  (void)socket, (void)data, (void)size, (void)flags;
  return nothing();
}
ssize_t recv(int socket, void* data, size_t size, int flags) {
  (void)socket, (void)data, (void)size, (void)flags;
  return nothing();
}
int getsockopt(int socket, int level, int option, void* value, socklen_t* size) {
  (void)socket, (void)level, (void)option, (void)value, (void)size;
  return nothing();
}
int setsockopt(int socket, int level, int option, const void* value, socklen_t size) {
  (void)socket, (void)level, (void)option, (void)value, (void)size;
  return nothing();
}

// libc++ 20 makes the exceptions of broken promises by this function, which libc++abi 14 lacks: nothing here breaks one.
void* __cxa_init_primary_exception(void* object, void* type, void* (*destroy)(void*)) {
  (void)object, (void)type, (void)destroy;
  abort();
}
