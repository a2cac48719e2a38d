#include "runtime/shared_memory_ranks.h"

namespace runtime {

// A page has no other processes whose memory it could open.
std::unique_ptr<Transport> share_memory(std::unique_ptr<Transport> transport) {
  return transport;
}

}  // namespace runtime
