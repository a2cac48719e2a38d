#include "app/end_early.h"

#include <cxxabi.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <typeinfo>

#include "app/cli/exit_code.h"

namespace app {
namespace {

bool ended = false;
std::atomic<bool> memory_ran_out = false;  // on any thread
std::terminate_handler other_reasons = nullptr;

// Allocates nothing: there may be no memory.
[[noreturn]] void end(const char* sentence) {
  [[maybe_unused]] const auto ignored = ::write(STDERR_FILENO, sentence, std::strlen(sentence));
  ::_exit(static_cast<int>(cli::ExitCode::device_error));
}

// Called where operator new finds no memory.
void on_no_memory() {
  memory_ran_out = true;
  throw std::bad_alloc();
}

[[noreturn]] void on_terminate() {
  const std::type_info* const thrown = abi::__cxa_current_exception_type();
  // A noexcept function of the standard library may end the program without naming the exception.
  if (thrown != nullptr ? *thrown == typeid(std::bad_alloc) : memory_ran_out.load())
    end("ridgepoint: the machine has no memory left for this program\n");
  if (other_reasons != nullptr) other_reasons();
  std::abort();
}

void on_exit_of(int status, void*) {
  if (!ended && status == EXIT_FAILURE)
    end("ridgepoint: a library that this program needs has ended it: has the machine memory and threads "
        "left?\n");
}

void prepare() {
  other_reasons = std::set_terminate(on_terminate);
  std::set_new_handler(on_no_memory);
  ::on_exit(on_exit_of, nullptr);
}

// The sanitizers' libraries cannot be called before they have started.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
[[gnu::constructor]] void prepare_late() {
  prepare();
}
#else
[[gnu::section(".preinit_array"), gnu::used]] void (*const prepare_first)() = prepare;
#endif

}  // namespace

void main_has_ended() noexcept {
  ended = true;
}

}  // namespace app
