#include "runtime/shared_memory_ranks.h"

namespace runtime {

// A page has no other processes whose memory it could open.
std::unique_ptr<Transport> share_memory(std::unique_ptr<Transport> transport,
                                        std::size_t /*most_on_the_way*/) {
  return transport;
}

}  // namespace runtime
