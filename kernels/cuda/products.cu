#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <vector>

#include "kernels/cuda/products.h"

namespace kernels::cuda {
namespace {

void check_cublas(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw CudaError(std::string("cuBLASLt: ") + cublasLtGetStatusString(status));
}

cudaDataType_t data_type(Type type) {
  switch (type) {
    case Type::f32:
      return CUDA_R_32F;
    case Type::bf16:
      return CUDA_R_16BF;
    case Type::f16:
      return CUDA_R_16F;
    case Type::e4m3:
      return CUDA_R_8F_E4M3;
    case Type::e5m2:
      return CUDA_R_8F_E5M2;
  }
  return CUDA_R_32F;
}

// Descriptions are handles of the library's.
template <class Handle, cublasStatus_t (*Destroy)(Handle)>
struct Destroyer {
  void operator()(Handle handle) const { Destroy(handle); }
};
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t,
                               Destroyer<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
using Description =
    std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroyer<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t,
                                   Destroyer<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;

template <class T>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_cublas(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value));
}

// The library thinks in columns: a row-major (rows, columns) is its (columns, rows).
Layout layout(Type type, std::int64_t rows, std::int64_t columns, std::int64_t leading, std::int64_t batch,
              std::int64_t stride) {
  cublasLtMatrixLayout_t handle = nullptr;
  check_cublas(cublasLtMatrixLayoutCreate(&handle, data_type(type), static_cast<std::uint64_t>(columns),
                                          static_cast<std::uint64_t>(rows), leading));
  Layout owned(handle);
  const auto count = static_cast<std::int32_t>(batch);
  check_cublas(
      cublasLtMatrixLayoutSetAttribute(handle, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
  check_cublas(cublasLtMatrixLayoutSetAttribute(handle, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                sizeof stride));
  return owned;
}

// The largest power of two that divides an address, up to 256: algorithms are chosen for it.
std::uint32_t alignment_of(const void* p) {
  constexpr std::uintptr_t kMost = 256;
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  return static_cast<std::uint32_t>(std::min(kMost, address == 0 ? kMost : address & (~address + 1)));
}

// All that an algorithm's choice depends on.
using Key = std::array<std::int64_t, 22>;

Key key_of(const Product& p) {
  return {p.M,
          p.N,
          p.K,
          p.transpose_a,
          p.transpose_b,
          p.lda,
          p.ldb,
          p.ldout,
          p.batch,
          p.stride_a,
          p.stride_b,
          p.stride_out,
          static_cast<std::int64_t>(p.a.type),
          static_cast<std::int64_t>(p.b.type),
          static_cast<std::int64_t>(p.out.type),
          static_cast<bool>(p.bias),
          static_cast<bool>(p.addend),
          p.tf32,
          alignment_of(p.a.data),
          alignment_of(p.b.data),
          alignment_of(p.out.data),
          alignment_of(p.addend.data)};
}

// A shape's descriptions and its algorithm.
struct Prepared {
  Description description;
  Layout first, second, out;  // the library's A (our b), B (our a), C and D
  cublasLtMatmulAlgo_t algorithm{};
};

struct Event {
  cudaEvent_t handle = nullptr;
  Event() { check(cudaEventCreate(&handle)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(handle); }
};

}  // namespace

struct Products::Implementation {
  explicit Implementation(bool is_deterministic) : deterministic(is_deterministic) {
    check_cublas(cublasLtCreate(&handle));
    check(cudaMalloc(&workspace, kWorkspaceBytes));
  }
  ~Implementation() {
    cudaFree(workspace);
    cublasLtDestroy(handle);
  }

  Prepared describe(const Product& p) const;
  void choose(const Context& context, const Product& p, Prepared& prepared) const;
  cublasStatus_t multiply(const Context& context, const Product& p, const Prepared& prepared,
                          const cublasLtMatmulAlgo_t& algorithm) const;

  bool deterministic;
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  std::map<Key, Prepared> prepared_of;
};

// Addresses that a description holds; products of one key differ in them.
void point_to(const Product& p, const Prepared& prepared) {
  if (p.bias) set(prepared.description.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias.data);
  if (p.scale_a) set(prepared.description.get(), CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.scale_a);
  if (p.scale_b) set(prepared.description.get(), CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.scale_b);
}

Prepared Products::Implementation::describe(const Product& p) const {
  Prepared prepared;
  cublasLtMatmulDesc_t description = nullptr;
  const bool tf32 = p.tf32 && p.a.type == Type::f32;
  check_cublas(cublasLtMatmulDescCreate(
      &description, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  prepared.description.reset(description);
  const cublasOperation_t first = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, first);
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, second);
  if (p.bias) {
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(p.bias.type));
  }
  point_to(p, prepared);
  const auto stored = [&p](ConstTensor tensor, bool transposed, std::int64_t rows, std::int64_t columns,
                           std::int64_t leading, std::int64_t stride) {
    if (transposed) std::swap(rows, columns);
    return layout(tensor.type, rows, columns, leading ? leading : columns, p.batch, stride);
  };
  prepared.first = stored(p.b, p.transpose_b, p.K, p.N, p.ldb, p.stride_b);
  prepared.second = stored(p.a, p.transpose_a, p.M, p.K, p.lda, p.stride_a);
  prepared.out = stored(p.out, false, p.M, p.N, p.ldout, p.stride_out);
  return prepared;
}

cublasStatus_t Products::Implementation::multiply(const Context& context, const Product& p,
                                                  const Prepared& prepared,
                                                  const cublasLtMatmulAlgo_t& algorithm) const {
  const float beta = p.addend ? 1.0f : 0.0f;
  const void* const addend = p.addend ? p.addend.data : p.out.data;
  return cublasLtMatmul(handle, prepared.description.get(), &p.scale, p.b.data, prepared.first.get(),
                        p.a.data, prepared.second.get(), &beta, addend, prepared.out.get(), p.out.data,
                        prepared.out.get(), &algorithm, workspace, kWorkspaceBytes, context.stream);
}

void Products::Implementation::choose(const Context& context, const Product& p, Prepared& prepared) const {
  cublasLtMatmulPreference_t handle_of_preference = nullptr;
  check_cublas(cublasLtMatmulPreferenceCreate(&handle_of_preference));
  const Preference preference(handle_of_preference);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check_cublas(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kWorkspaceBytes));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.addend ? p.addend.data : p.out.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.out.data));

  constexpr int kCandidates = 8;
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> candidates{};
  int found = 0;
  check_cublas(cublasLtMatmulAlgoGetHeuristic(
      handle, prepared.description.get(), prepared.first.get(), prepared.second.get(), prepared.out.get(),
      prepared.out.get(), preference.get(), deterministic ? 1 : kCandidates, candidates.data(), &found));
  if (found == 0)
    throw CudaError("cuBLASLt has no algorithm for a product of " + std::to_string(p.M) + " x " +
                    std::to_string(p.N) + " x " + std::to_string(p.K));
  prepared.algorithm = candidates[0].algo;
  if (found == 1) return;

  // Products that add to their own output are timed on it all the same: what was there is kept and put back.
  const std::int64_t rows = p.M + (p.batch - 1) * (p.ldout ? p.stride_out / p.ldout : p.M);
  const std::int64_t bytes = rows * (p.ldout ? p.ldout : p.N) * size_of(p.out.type);
  const bool in_place = p.addend && p.addend.data == p.out.data;
  cudaStreamCaptureStatus capturing{};
  check(cudaStreamIsCapturing(context.stream, &capturing));
  if (capturing != cudaStreamCaptureStatusNone || (in_place && bytes > context.scratch_bytes)) return;
  const auto copy = [&](void* to, const void* from) {
    check(
        cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, context.stream));
  };
  if (in_place) copy(context.scratch, p.out.data);
  constexpr int kRuns = 3;
  const Event start, end;
  float least = 0;
  for (int c = 0; c < found; ++c) {
    const cublasLtMatmulAlgo_t& algorithm = candidates[static_cast<std::size_t>(c)].algo;
    if (multiply(context, p, prepared, algorithm) != CUBLAS_STATUS_SUCCESS) continue;  // warm-up
    check(cudaEventRecord(start.handle, context.stream));
    for (int run = 0; run < kRuns; ++run) check_cublas(multiply(context, p, prepared, algorithm));
    check(cudaEventRecord(end.handle, context.stream));
    check(cudaEventSynchronize(end.handle));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start.handle, end.handle));
    if (least == 0 || milliseconds < least) {
      least = milliseconds;
      prepared.algorithm = algorithm;
    }
  }
  if (in_place) copy(p.out.data, context.scratch);
}

Products::Products(bool deterministic) : implementation_(std::make_unique<Implementation>(deterministic)) {}
Products::~Products() = default;

void Products::run(const Context& context, const Product& product) {
  const Key key = key_of(product);
  auto place = implementation_->prepared_of.find(key);
  if (place == implementation_->prepared_of.end()) {
    Prepared prepared = implementation_->describe(product);
    implementation_->choose(context, product, prepared);
    place = implementation_->prepared_of.emplace(key, std::move(prepared)).first;
  }
  const Prepared& prepared = place->second;
  point_to(product, prepared);
  check_cublas(implementation_->multiply(context, product, prepared, prepared.algorithm));
}

}  // namespace kernels::cuda
