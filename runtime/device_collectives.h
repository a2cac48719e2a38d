// How ranks on GPUs exchange: by NCCL where each has a GPU, by way of the host's memory where some share one
// or NCCL is switched off.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/collectives.h"
#include "runtime/communicator.h"
#include "runtime/device.h"

namespace runtime {

// Every rank calls it, with the plan's groups that it is in and the pairs (from, to) of ranks that its
// messages go between. Throws NoDevice where ranks have a GPU each and NCCL is missing.
std::unique_ptr<Collectives> make_device_collectives(
    Device& device, Communicator& communicator, std::span<const Members> groups,
    std::span<const std::pair<std::int32_t, std::int32_t>> pairs);

}  // namespace runtime
