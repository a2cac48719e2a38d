// Which code the kernels are made of: measurements of them hold for this code and no other.
#pragma once
#include <string_view>

namespace kernels {

// A hash of the code of the CPU's kernels, without comments, and one of the GPU's, written by the build.
std::string_view cpu_code();
std::string_view cuda_code();

}  // namespace kernels
