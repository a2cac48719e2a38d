// Ranks that are threads of this process: every strategy runs without a launcher, under a debugger, under
// ThreadSanitizer.
#pragma once
#include <cstdint>
#include <functional>

#include "runtime/transport.h"

namespace runtime {

// Calls work(transport) on a thread for each rank. Where some throw, the first exception is thrown again when
// all have ended; it is what the others' RankLost was about.
void run_thread_ranks(std::int32_t ranks, const std::function<void(Transport&)>& work);

}  // namespace runtime
