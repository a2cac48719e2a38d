// Ranks that are processes of one machine: their messages go through memory that both see.
#pragma once
#include <cstddef>
#include <memory>

#include "runtime/transport.h"

namespace runtime {

// What a rank may have sent, in bytes, before it waits for somebody to receive it: what a pipeline's schedule
// queues, and not much beside a model.
constexpr std::size_t kMostOnTheWay = std::size_t{256} << 20;

// All ranks call it, over a transport that they are connected by, which goes on to tell who is no more. That
// transport itself where not all of them can open the others' memory (processes in containers of their own).
std::unique_ptr<Transport> share_memory(std::unique_ptr<Transport> transport,
                                        std::size_t most_on_the_way = kMostOnTheWay);

}  // namespace runtime
