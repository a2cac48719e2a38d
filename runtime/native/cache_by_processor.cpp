#include <unistd.h>

#include <algorithm>

#include "runtime/last_cache.h"

namespace runtime {

sim::Bytes cache_by_processor() {
  // glibc asks the processor, which on some AMD chips answers for the whole socket.
  const long level_3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return {std::max<long>(level_3 > 0 ? level_3 : sysconf(_SC_LEVEL2_CACHE_SIZE), 0)};
}

}  // namespace runtime
