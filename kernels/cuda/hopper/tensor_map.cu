#include <cudaTypedefs.h>

#include <cstring>
#include <string>

#include "kernels/cuda/hopper/tensor_map.h"
#include "kernels/cuda/launch.h"

namespace kernels::cuda {
namespace {

// The driver is not linked, so that the program starts where there is none.
PFN_cuTensorMapEncodeTiled_v12000 find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                         &result));
#else
  check(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result));
#endif
  if (result != cudaDriverEntryPointSuccess || function == nullptr)
    throw CudaError(
        "the driver cannot describe tensors to the copy engine (cuTensorMapEncodeTiled is of CUDA 12)");
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

}  // namespace

TensorMap map_heads_of_16_bits(const Heads<const std::uint16_t>& heads, std::int64_t count, std::int64_t T,
                               std::int64_t B, int box_tokens) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = find_encoder();
  constexpr cuuint32_t kColumns = 64;
  const auto size = [](std::int64_t x) { return static_cast<cuuint64_t>(x); };
  const cuuint64_t sizes[] = {size(heads.D), size(count), size(T), size(B)};
  const cuuint64_t strides[] = {size(heads.D * 2), size(heads.row * 2), size(T * heads.row * 2)};
  const cuuint32_t box[] = {kColumns, 1, static_cast<cuuint32_t>(box_tokens), 1}, steps[] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, const_cast<std::uint16_t*>(heads.data), sizes, strides,
             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw CudaError("the driver refuses to describe a tensor to the copy engine (error " +
                    std::to_string(result) + ")");
  TensorMap opaque;
  static_assert(sizeof opaque == sizeof map);
  std::memcpy(&opaque, &map, sizeof map);
  return opaque;
}

}  // namespace kernels::cuda
