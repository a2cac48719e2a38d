// main() of a fuzzed reader without libFuzzer: inputs made from the seeds by a fixed series of random
// numbers, so that every compiler runs the same ones. Files named on the command line are read instead.
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);

namespace {

constexpr std::size_t kLongest = 1 << 18;
constexpr unsigned kLongestSeconds = 20;
constexpr const char* kFound = "fuzz-found";

std::string current;  // the input that is being read

// Says what ended the program and keeps the input. Calls only what a signal handler may.
void put(const char* text) {
  [[maybe_unused]] const auto ignored = ::write(STDERR_FILENO, text, __builtin_strlen(text));
}
void keep_input(int signal) {
  put(signal == SIGALRM ? "hung on this input, kept as " : "ended by a signal on this input, kept as ");
  put(kFound);
  put("\n");
  if (std::FILE* const out = std::fopen(kFound, "wb")) {
    std::fwrite(current.data(), 1, current.size(), out);
    std::fclose(out);
  }
  _exit(1);
}

void watch() {
  static std::array<char, 1 << 16> stack;  // for a stack that has overflown
  const stack_t other{stack.data(), 0, stack.size()};
  sigaltstack(&other, nullptr);
  struct sigaction action {};
  action.sa_handler = keep_input;
  action.sa_flags = SA_ONSTACK;
  for (const int signal : {SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGSEGV})
    sigaction(signal, &action, nullptr);
}

void read_current() {
  alarm(kLongestSeconds);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(current.data()), current.size());
  alarm(0);
}

}  // namespace

// What an input may ask for at once: much more than it has itself, and far less than its numbers can say.
void* operator new(std::size_t size) {
  constexpr std::size_t kAlways = std::size_t{64} << 20, kTimes = 64;
  if (size > kAlways + kTimes * current.size()) {
    put("law broken: no allocation that the input's length does not back\n");
    std::abort();
  }
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
// The standard library's temporary buffers; a sanitizer's own would not be freed by what stands below.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

int main(int argc, char** argv) {
  LLVMFuzzerInitialize(&argc, &argv);
  watch();
  long runs = 1000;
  double seconds = 3600;
  std::uint64_t seed = 1;
  bool read_files = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--runs" && has_value) {
      runs = std::atol(argv[++i]);
    } else if (word == "--seconds" && has_value) {
      seconds = std::atof(argv[++i]);
    } else if (word == "--seed" && has_value) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      current = fuzz::content(word);
      read_current();
      read_files = true;
    }
  }
  if (read_files) return 0;

  const std::vector<std::string> seeds = fuzz::seeds();
  fuzz::require(!seeds.empty(), "there are seeds");
  for (const std::string& sound : seeds) {
    current = sound;
    read_current();
  }
  std::mt19937_64 random(seed);
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  long done = 0;
  double slowest = 0;
  for (; done < runs && passed() < seconds; ++done) {
    current = fuzz::mutated(seeds[random() % seeds.size()], seeds, kLongest, random);
    const double before = passed();
    read_current();
    slowest = std::max(slowest, passed() - before);
  }
  std::printf("%zu seeds, %ld inputs made of them, %.1f s, the slowest %.2f s\n", seeds.size(), done,
              passed(), slowest);
  return 0;
}
