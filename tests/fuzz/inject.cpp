// Loaded before a program (LD_PRELOAD): the call number RIDGEPOINT_FAIL_AT of the sort RIDGEPOINT_FAIL_CALL
// fails as the system lets it fail, and every later one works. Calls are counted from 1, over all threads and
// over all processes of the command, in the file RIDGEPOINT_FAIL_COUNT of 8 bytes.
//
// What a program calls by name is replaced by name. Writes are stopped where they enter the kernel: stdio's
// do not call write() by name.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

// Read without allocating: malloc itself is among what fails.
struct Plan {
  const char* call = std::getenv("RIDGEPOINT_FAIL_CALL");
  long at = std::getenv("RIDGEPOINT_FAIL_AT") ? std::atol(std::getenv("RIDGEPOINT_FAIL_AT")) : 0;
  long* calls = nullptr;

  Plan() {
    const char* const name = std::getenv("RIDGEPOINT_FAIL_COUNT");
    if (name == nullptr) return;
    const long file = syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void* const page = reinterpret_cast<void*>(
        syscall(SYS_mmap, nullptr, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    if (page != MAP_FAILED) calls = static_cast<long*>(page);
    syscall(SYS_close, file);
  }
};

const Plan& plan() {
  static const Plan plan;
  return plan;
}

bool is_planned(const char* call) {
  return plan().call != nullptr && plan().calls != nullptr && std::strcmp(call, plan().call) == 0;
}

bool fails(const char* call) {
  if (!is_planned(call)) return false;
  return std::atomic_ref<long>(*plan().calls).fetch_add(1) + 1 == plan().at;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

#if defined(__x86_64__)

// The kernel does not read a sixth argument of these: with this one in it, a call is let through.
constexpr unsigned kLetThrough = 0x52504c54;

void on_write(int, siginfo_t* which, void* context) {
  const int kept = errno;
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  long result = -ENOSPC;
  if (!fails("write")) {
    result = syscall(which->si_syscall, registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                     registers[REG_R10], 0, kLetThrough);
    if (result < 0) result = -errno;
  }
  registers[REG_RAX] = result;
  errno = kept;
}

bool stop_writes() {
  struct sigaction action = {};
  action.sa_sigaction = on_write;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
  if (sigaction(SIGSYS, &action, nullptr) != 0) return false;
  sock_filter lines[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 6),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[5])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kLetThrough, 4, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_writev, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwrite64, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
  };
  const sock_fprog filter = {sizeof(lines) / sizeof(lines[0]), lines};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

#else

bool stop_writes() {
  return false;
}

#endif

bool writes_are_stopped = false;

[[gnu::constructor]] void begin() {
  writes_are_stopped = is_planned("write") && stop_writes();
}

}  // namespace

extern "C" {

void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

void* malloc(std::size_t size) {
  if (!fails("malloc")) return __libc_malloc(size);
  errno = ENOMEM;
  return nullptr;
}

void* calloc(std::size_t count, std::size_t size) {
  if (!fails("malloc")) return __libc_calloc(count, size);
  errno = ENOMEM;
  return nullptr;
}

void* realloc(void* old, std::size_t size) {
  if (!fails("malloc")) return __libc_realloc(old, size);
  errno = ENOMEM;
  return nullptr;
}

void* aligned_alloc(std::size_t alignment, std::size_t size) {
  if (!fails("malloc")) return __libc_memalign(alignment, size);
  errno = ENOMEM;
  return nullptr;
}

int posix_memalign(void** into, std::size_t alignment, std::size_t size) {
  if (fails("malloc")) return ENOMEM;
  *into = __libc_memalign(alignment, size);
  return *into != nullptr ? 0 : ENOMEM;
}

ssize_t read(int file, void* into, std::size_t count) {
  static const auto real = next<ssize_t (*)(int, void*, std::size_t)>("read");
  if (fails("read")) {
    errno = EIO;
    return -1;
  }
  return real(file, into, count);
}

// Where the kernel lets nobody stop writes, those that are called by name.
ssize_t write(int file, const void* from, std::size_t count) {
  static const auto real = next<ssize_t (*)(int, const void*, std::size_t)>("write");
  if (!writes_are_stopped && fails("write")) {
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
  // Without a name it is the process itself, which is always there.
  const bool missing = name != nullptr && fails("dlopen");
  // As a library that is not there: dlerror() has something to say then, which whoever called reads.
  return real(missing ? "/no/such/library" : name, flags);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*begin)(void*),
                   void* argument) {
  static const auto real =
      next<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  return fails("pthread_create") ? EAGAIN : real(thread, attributes, begin, argument);
}

}  // extern "C"
