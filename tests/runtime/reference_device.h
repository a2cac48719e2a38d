// A device that runs every operation of the strategies that are drawn at random (random_strategy.h) by the
// plain reference of tests/kernels, in double: with it what divides work among ranks is held to one rank far
// below the rounding of fp32.
#pragma once
#include <memory>

#include "runtime/device.h"

namespace tests {

std::unique_ptr<runtime::Device> make_reference_device();

}  // namespace tests
