#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <vector>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/stream.h"

namespace kernels::cuda {
namespace {

void check_cublas(cublasStatus_t status, const std::string& of = "") {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw CudaError("cuBLASLt" + (of.empty() ? of : ", for " + of) + ": " + cublasLtGetStatusString(status));
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

// Descriptions are handles of the library.
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

// The library orders elements by columns: a row-major (rows, columns) is its (columns, rows).
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

// The largest power of two up to 256 that divides an address: the choice of algorithm depends on it.
std::uint32_t alignment_of(const void* p) {
  constexpr std::uintptr_t kMost = 256;
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  return static_cast<std::uint32_t>(std::min(kMost, address == 0 ? kMost : address & (~address + 1)));
}

std::string text_of(const Product& p) {
  const auto operand = [](Type type, bool transposed) {
    return std::string(name_of(type)) + (transposed ? " transposed" : "");
  };
  return "a product of " + std::to_string(p.M) + " x " + std::to_string(p.N) + " x " + std::to_string(p.K) +
         ", " + operand(p.a.type, p.transpose_a) + " times " + operand(p.b.type, p.transpose_b) + " in " +
         name_of(p.out.type) + (p.bias ? ", with a bias" : "") + (p.addend ? ", added to" : "");
}

// All that an algorithm's choice depends on.
using Key = std::array<std::int64_t, 24>;

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
          alignment_of(p.addend.data),
          static_cast<std::int64_t>(p.epilogue),
          alignment_of(p.pre_activation.data)};
}

// The descriptions of a shape, and its algorithm.
struct Prepared {
  Description description;
  Layout first, second, out;  // the library's A (our b), B (our a), C and D
  cublasLtMatmulAlgo_t algorithm{};
};

cublasLtEpilogue_t epilogue_of(const Product& p) {
  switch (p.epilogue) {
    case Epilogue::gelu:
      return p.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::gelu_gradient:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::row_sums:
      return CUBLASLT_EPILOGUE_BGRADB;  // its B is our a
    default:
      return p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
}

// A product that adds to its own output is timed on that output: what was there is kept in scratch memory and
// put back.
class KeptOutput {
 public:
  KeptOutput(const Context& context, const Product& p) : context_(context), out_(p.out.data) {
    if (!p.addend || p.addend.data != p.out.data) return;
    const std::int64_t rows = p.M + (p.batch - 1) * (p.ldout ? p.stride_out / p.ldout : p.M);
    bytes_ = rows * (p.ldout ? p.ldout : p.N) * size_of(p.out.type);
    if (fits()) copy(context_.scratch, out_);
  }
  // If the copy does not fit, nothing may be timed.
  bool fits() const { return bytes_ <= context_.scratch_bytes; }
  // The scratch memory behind the copy.
  Context rest() const { return context_.behind(bytes_); }
  void put_back() const {
    if (bytes_ > 0) copy(out_, context_.scratch);
  }

 private:
  void copy(void* to, const void* from) const {
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes_), cudaMemcpyDeviceToDevice,
                          context_.stream));
  }

  Context context_;
  void* out_;
  std::int64_t bytes_ = 0;
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
  // False where the library has no algorithm.
  bool choose(const Context& context, const Product& p, Prepared& prepared) const;
  // The product's descriptions and algorithm, found once. Throws where the library has none.
  const Prepared& prepare(const Context& context, const Product& p);
  void run(const Context& context, const Product& p);
  // Adds the addend in a pass of its own. For one product, whose first operand is not transposed.
  void run_and_add(const Context& context, const Product& p);
  // For a product with an epilogue: empty where the library has none, or where it is not faster.
  std::optional<Prepared> prepare_if_faster(const Context& context, const Product& fused,
                                            const Product& plain,
                                            const std::function<void(const Context&)>& rest);
  cublasStatus_t multiply(const Context& context, const Product& p, const Prepared& prepared,
                          const cublasLtMatmulAlgo_t& algorithm) const;

  bool deterministic;
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  std::map<Key, Prepared> prepared_of;
  std::map<Key, std::optional<Prepared>> fused_of;
};

// Sets the addresses that a description holds; they differ between products of one key.
void point_to(const Product& p, const Prepared& prepared) {
  if (p.bias) set(prepared.description.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias.data);
  if (p.row_sums) set(prepared.description.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.row_sums.data);
  if (p.pre_activation)
    set(prepared.description.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.pre_activation.data);
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
  set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p));
  if (p.bias) set(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(p.bias.type));
  if (p.row_sums) set(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(p.row_sums.type));
  if (p.pre_activation) set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.N);
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

bool Products::Implementation::choose(const Context& context, const Product& p, Prepared& prepared) const {
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
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, prepared.description.get(), prepared.first.get(), prepared.second.get(), prepared.out.get(),
      prepared.out.get(), preference.get(), kCandidates, candidates.data(), &found);
  // The library has several answers for a combination of types, epilogue and alignment that it lacks.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
      status == CUBLAS_STATUS_ARCH_MISMATCH)
    return false;
  check_cublas(status);
  const auto usable =
      std::remove_if(candidates.begin(), candidates.begin() + found,
                     [](const auto& candidate) { return candidate.state != CUBLAS_STATUS_SUCCESS; });
  found = static_cast<int>(usable - candidates.begin());
  if (found == 0) return false;
  prepared.algorithm = candidates[0].algo;
  if (is_capturing(context)) return true;

  const KeptOutput kept(context, p);
  if (!kept.fits()) return true;
  // The library can still refuse to run an algorithm that it proposes.
  double least = 0;
  bool runs = false;
  for (int c = 0; c < found && !(runs && deterministic); ++c) {
    const cublasLtMatmulAlgo_t& algorithm = candidates[static_cast<std::size_t>(c)].algo;
    if (multiply(context, p, prepared, algorithm) != CUBLAS_STATUS_SUCCESS) continue;
    const double seconds =
        deterministic ? 0
                      : seconds_of(context, [&] { check_cublas(multiply(context, p, prepared, algorithm)); });
    if (!runs || seconds < least) {
      least = seconds;
      prepared.algorithm = algorithm;
    }
    runs = true;
  }
  kept.put_back();
  return runs;
}

const Prepared& Products::Implementation::prepare(const Context& context, const Product& p) {
  const Key key = key_of(p);
  auto place = prepared_of.find(key);
  if (place == prepared_of.end()) {
    Prepared prepared = describe(p);
    if (!choose(context, p, prepared)) throw CudaError("cuBLASLt has no algorithm for " + text_of(p));
    place = prepared_of.emplace(key, std::move(prepared)).first;
  }
  point_to(p, place->second);
  return place->second;
}

void Products::Implementation::run(const Context& context, const Product& p) {
  // Bias and addend stay apart in fp8, as in XLA (github.com/tensorflow/tensorflow/pull/60020). Whether the
  // library takes both together by now was not tried.
  if (is_fp8(p.a.type) && p.bias && p.addend) return run_and_add(context, p);
  const Prepared& prepared = prepare(context, p);
  const cublasStatus_t status = multiply(context, p, prepared, prepared.algorithm);
  if (status != CUBLAS_STATUS_SUCCESS) check_cublas(status, text_of(p));
}

void Products::Implementation::run_and_add(const Context& context, const Product& p) {
  const std::int64_t row_bytes = p.N * size_of(p.out.type), stride = p.ldout ? p.ldout : p.N;
  const std::int64_t at_once =
      stride == p.N ? std::clamp<std::int64_t>(context.scratch_bytes / 2 / row_bytes, 1, p.M) : 1;
  Product part = p;
  part.out = {context.scratch_for<std::byte>(at_once * row_bytes), p.out.type};
  part.ldout = 0;
  part.addend = {};
  for (std::int64_t row = 0; row < p.M; row += at_once) {
    part.M = std::min(at_once, p.M - row);
    part.a = from_row(p.a, row, p.lda ? p.lda : p.K);
    run(context.behind(at_once * row_bytes), part);
    add(context, from_row(p.out, row, stride), part.out, from_row(p.addend, row, stride), {}, part.M, p.N);
  }
}

std::optional<Prepared> Products::Implementation::prepare_if_faster(
    const Context& context, const Product& fused, const Product& plain,
    const std::function<void(const Context&)>& rest) {
  if (deterministic && fused.epilogue == Epilogue::gelu) return std::nullopt;
  Prepared prepared = describe(fused);
  if (!choose(context, fused, prepared)) return std::nullopt;
  if (deterministic) return prepared;
  const Prepared* const prepared_plain = &prepare(context, plain);
  const KeptOutput kept(context, fused);
  if (!kept.fits()) return std::nullopt;
  const double with_epilogue =
      seconds_of(context, [&] { check_cublas(multiply(context, fused, prepared, prepared.algorithm)); });
  const Context left = kept.rest();
  const double in_passes = seconds_of(context, [&] {
    check_cublas(multiply(left, plain, *prepared_plain, prepared_plain->algorithm));
    rest(left);
  });
  kept.put_back();
  if (with_epilogue >= in_passes) return std::nullopt;
  return prepared;
}

Products::Products(bool deterministic) : implementation_(std::make_unique<Implementation>(deterministic)) {}
Products::~Products() = default;

void Products::run(const Context& context, const Product& product) {
  implementation_->run(context, product);
}

bool Products::run_if_faster(const Context& context, const Product& fused, const Product& plain,
                             const std::function<void(const Context&)>& rest) {
  const Key key = key_of(fused);
  auto place = implementation_->fused_of.find(key);
  if (place == implementation_->fused_of.end()) {
    if (is_capturing(context) && !implementation_->deterministic) return false;  // nothing can be timed now
    place = implementation_->fused_of
                .emplace(key, implementation_->prepare_if_faster(context, fused, plain, rest))
                .first;
  }
  const std::optional<Prepared>& prepared = place->second;
  if (!prepared) return false;
  point_to(fused, *prepared);
  check_cublas(implementation_->multiply(context, fused, *prepared, prepared->algorithm));
  return true;
}

}  // namespace kernels::cuda
