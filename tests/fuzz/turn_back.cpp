// Loaded before a program (LD_PRELOAD): from RIDGEPOINT_TURN_BACK_AFTER seconds on, the clock that people set
// shows an hour less, as if somebody had set it back. The clock that only counts goes on.
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

#include <cstdlib>

namespace {

constexpr time_t kHour = 3600;

using GetTime = int (*)(clockid_t, timespec*);

GetTime real_clock() {
  static const auto real = reinterpret_cast<GetTime>(dlsym(RTLD_NEXT, "clock_gettime"));
  return real;
}

double now() {
  timespec t{};
  real_clock()(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

time_t set_back() {
  static const char* const text = std::getenv("RIDGEPOINT_TURN_BACK_AFTER");
  static const double from = now() + (text == nullptr ? 1e18 : std::atof(text));
  return now() >= from ? kHour : 0;
}

[[gnu::constructor]] void begin() {
  set_back();
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* out) {
  const int result = real_clock()(clock, out);
  if (clock == CLOCK_REALTIME && result == 0) out->tv_sec -= set_back();
  return result;
}

time_t time(time_t* out) {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  if (out != nullptr) *out = t.tv_sec;
  return t.tv_sec;
}

int gettimeofday(timeval* out, void*) {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  *out = {t.tv_sec, t.tv_nsec / 1000};
  return 0;
}

}  // extern "C"
