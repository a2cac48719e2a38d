// Ranks that are processes of one machine: their messages go through memory that both see.
#pragma once
#include <memory>

#include "runtime/transport.h"

namespace runtime {

// All ranks call it, over a transport that they are connected by, which goes on to tell who is no more. That
// transport itself where not all of them can open the others' memory (processes in containers of their own).
std::unique_ptr<Transport> share_memory(std::unique_ptr<Transport> transport);

}  // namespace runtime
