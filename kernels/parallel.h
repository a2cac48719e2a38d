// Splitting a loop over the CPU threads.
#pragma once
#include <omp.h>

#include <cstdint>

namespace kernels::cpu {

// Waking the threads costs a few microseconds: loops over less than this many floats run on the calling
// thread.
inline constexpr std::int64_t kParallelGrain = 8192;

// Calls body(begin, end) on contiguous parts of [0, count), one part a thread, or once where count times
// cost_each (in floats touched) is too little to be worth a second thread. The team is all threads or one:
// libgomp ends and restarts threads when the size of the team changes.
template <class Body>
void parallel_ranges(std::int64_t count, std::int64_t cost_each, const Body& body) {
  if (count < 2 || count * cost_each < 2 * kParallelGrain) {
    body(std::int64_t{0}, count);
    return;
  }
#pragma omp parallel
  {
    const std::int64_t thread = omp_get_thread_num();
    const std::int64_t team = omp_get_num_threads();
    const std::int64_t begin = count * thread / team;
    const std::int64_t end = count * (thread + 1) / team;
    if (begin < end) body(begin, end);
  }
}

// Calls body(index) for each of [0, count), handed out one by one as threads become free: for tasks of
// unequal length.
template <class Body>
void parallel_tasks(std::int64_t count, const Body& body) {
#pragma omp parallel for schedule(dynamic, 1) if (count > 1)
  for (std::int64_t index = 0; index < count; ++index) body(index);
}

}  // namespace kernels::cpu
