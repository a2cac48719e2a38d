// What choosing between kernels needs of a stream: how long work takes, what it wrote, and whether it can be
// timed now.
#pragma once
#include <cstddef>
#include <functional>
#include <span>

#include "kernels/cuda/launch.h"

namespace kernels::cuda {

// Whether work is noted instead of done: then nothing can be timed.
bool is_capturing(const Context& context);

// Seconds of a run of `work` in the stream: the mean of three, after one that warms up.
double seconds_of(const Context& context, const std::function<void()>& work);

// Waits for the stream.
void copy_to_host(const Context& context, std::span<std::byte> to, const void* from);

}  // namespace kernels::cuda
