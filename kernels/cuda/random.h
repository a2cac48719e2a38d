// Random numbers by counting: a function of what they are for, not of an order or of threads.
#pragma once
#include "kernels/cuda/thread.h"

namespace kernels::cuda {

// SplitMix64's output function (Steele, Lea, Flood 2014).
CUDA_DEVICE std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace kernels::cuda
