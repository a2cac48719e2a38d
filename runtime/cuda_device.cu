// A table from operation kinds to the kernels of kernels/cuda, as cpu_device.cpp is for the CPU.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_choice.h"
#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/quantise.h"
#include "kernels/cuda/sampling.h"
#include "runtime/cuda_device.h"
#include "runtime/error.h"
#include "runtime/operation_view.h"
#include "sim/plan/memory.h"

namespace runtime {
namespace {

namespace cuda = kernels::cuda;
using cuda::ConstTensor;
using cuda::Tensor;
using sim::OpKind;

// Numbers of a run that change from step to step, in device memory.
struct StepNumbers {
  cuda::AdamWStep adamw;
  cuda::SamplingStep sampling;
  cuda::DropoutStep dropout;
  float loss_scale;
};

// fp32 for types that no tensor of an operation has.
cuda::Type type_of(sim::DType dtype) {
  switch (dtype) {
    case sim::DType::bf16:
      return cuda::Type::bf16;
    case sim::DType::fp16:
      return cuda::Type::f16;
    default:
      return cuda::Type::f32;
  }
}

// Scales of the tensors in fp8. A plan's fp8 tensors are written before they are read, so an address says
// which one is meant; its scale has a place that stays, since captured work points to it.
class Fp8Scales {
 public:
  struct Tensor {
    cuda::Type type = cuda::Type::e4m3;
    float* scale = nullptr;  // device
  };

  explicit Fp8Scales(cuda::Gpu& gpu) : gpu_(gpu) {}
  ~Fp8Scales() {
    for (float* block : blocks_) gpu_.release(reinterpret_cast<std::byte*>(block));
  }
  Fp8Scales(const Fp8Scales&) = delete;
  Fp8Scales& operator=(const Fp8Scales&) = delete;

  // A tensor that is about to be written there.
  const Tensor& write(const std::byte* address, cuda::Type type) {
    Tensor& tensor = tensors_[address];
    if (tensor.scale == nullptr) {
      const std::size_t index = (tensors_.size() - 1) % kInBlock;
      if (index == 0) blocks_.push_back(reinterpret_cast<float*>(gpu_.allocate(kInBlock * sizeof(float))));
      tensor.scale = blocks_.back() + index;
    }
    tensor.type = type;
    return tensor;
  }
  // Empty where nothing was written there.
  Tensor at(const std::byte* address) const {
    const auto found = tensors_.find(address);
    return found == tensors_.end() ? Tensor{} : found->second;
  }

 private:
  static constexpr std::size_t kInBlock = 1024;

  cuda::Gpu& gpu_;
  std::map<const std::byte*, Tensor> tensors_;
  std::vector<float*> blocks_;
};

// Scales of weights that are stored in fewer bits, by the weights' addresses.
using WeightScales = std::map<const std::byte*, float*>;

// An operation, and what kernels work with.
class Call : public OperationView {
 public:
  Call(const BoundOperation& bound, const cuda::Context& with, cuda::Products& multiplier,
       Fp8Scales& fp8_scales, const WeightScales& scales_of_weights, const StepNumbers* step_numbers)
      : OperationView(bound),
        context(with),
        products(multiplier),
        fp8(fp8_scales),
        weight_scales(scales_of_weights),
        numbers(step_numbers) {}

  const cuda::Context& context;
  cuda::Products& products;
  Fp8Scales& fp8;
  const WeightScales& weight_scales;
  const StepNumbers* numbers;

  Tensor tensor(std::size_t operand) const {
    if (operand >= operands()) return {};
    const BoundOperand& o = bound().operands[operand];
    return {o.data, o.dtype == sim::DType::fp8 ? fp8.at(o.data).type : type_of(o.dtype)};
  }
  // An operand in one of the formats of decoding's weights; in bf16 without scales where it is in none.
  cuda::Weights weights(std::size_t operand) const {
    const BoundOperand& o = bound().operands[operand];
    const auto found = weight_scales.find(o.data);
    if (found == weight_scales.end()) return {cuda::WeightFormat::bf16, o.data, nullptr};
    return {o.dtype == sim::DType::int8   ? cuda::WeightFormat::int8
            : o.dtype == sim::DType::int4 ? cuda::WeightFormat::int4
                                          : cuda::WeightFormat::fp8,
            o.data, found->second};
  }
  // Of an operand in fp8, a device scalar; null of others.
  const float* scale(std::size_t operand) const {
    const BoundOperand& o = bound().operands[operand];
    return o.dtype == sim::DType::fp8 ? fp8.at(o.data).scale : nullptr;
  }
  std::int64_t bytes(std::size_t operand) const { return bound().operands[operand].bytes; }
  std::int64_t count(std::size_t operand) const {
    return bytes(operand) / cuda::size_of(tensor(operand).type);
  }
  // Tells apart the tensors that operations drop elements of, or round stochastically: by the operation's id,
  // which its forward and recompute phases share, the layer and micro-batch, and where one operation has
  // several tensors, by their number.
  std::uint64_t random_stream(std::size_t tensor_number = 0) const {
    constexpr std::uint64_t kOffset = 0xcbf29ce484222325u, kPrime = 0x100000001b3u;  // FNV-1a
    std::uint64_t hash = kOffset;
    for (const char letter : bound().operation->id)
      hash = (hash ^ static_cast<std::uint8_t>(letter)) * kPrime;
    hash = (hash ^ static_cast<std::uint32_t>(bound().layer)) * kPrime;
    hash = (hash ^ static_cast<std::uint32_t>(bound().micro_batch)) * kPrime;
    return (hash ^ tensor_number) * kPrime;
  }
  bool tf32() const { return bound().operation->dtype == sim::DType::tf32; }
};

// What is left of the scratch memory behind its first bytes.
cuda::Context behind(cuda::Context context, std::int64_t bytes) {
  const std::int64_t used = cuda::ceil_div(bytes, sim::kArenaAlignment) * sim::kArenaAlignment;
  context.scratch += used;
  context.scratch_bytes -= used;
  return context;
}

// Matrix products take both operands in one type. A gradient that comes in fp32 where weights are bf16
// (logits kept in fp32) goes through scratch memory, as many rows at a time as fit: calls body(first row,
// rows, tensor).
template <class Body>
void by_rows_in_type(const Call& call, ConstTensor wide, cuda::Type type, std::int64_t rows,
                     std::int64_t cols, const Body& body) {
  if (wide.type == type) return body(0, rows, wide, call.context);
  const std::int64_t row_bytes = cols * cuda::size_of(type);
  const std::int64_t half = call.context.scratch_bytes / 2;
  const std::int64_t at_once = std::clamp<std::int64_t>(half / row_bytes, 1, rows);
  const Tensor narrow{call.context.scratch_for<std::byte>(at_once * row_bytes), type};
  const cuda::Context rest = behind(call.context, at_once * row_bytes);
  for (std::int64_t row = 0; row < rows; row += at_once) {
    const std::int64_t count = std::min(at_once, rows - row);
    cuda::convert(call.context, narrow, {wide.as<float>() + row * cols, wide.type}, count * cols);
    body(row, count, ConstTensor(narrow), rest);
  }
}

template <class AnyTensor>
AnyTensor from_row(AnyTensor tensor, std::int64_t row, std::int64_t cols) {
  tensor.data = const_cast<std::byte*>(static_cast<const std::byte*>(tensor.data)) +
                row * cols * cuda::size_of(tensor.type);
  return tensor;
}

// One row, as decoding has it, is bound by reading the weights: a kernel of its own does that.
bool is_gemv(const Call& c) {
  const Tensor out = c.tensor(0), addend = c.tensor(4);
  return c.rows() == 1 && c.tensor(1).type == cuda::Type::bf16 &&
         (!addend || addend.type == cuda::Type::bf16) && (out.type == cuda::Type::bf16 || !addend) &&
         cuda::gemv_takes(cuda::WeightFormat::bf16, c.rows(), c.inner());
}

// Weights in fewer bits: few rows read them as they are; of more rows, as the prompt has them, some of the
// weight's rows at a time become 16-bit numbers again in scratch memory.
void matmul_with_quantised_weight(const Call& c, const cuda::Weights& weights) {
  const std::int64_t N = c.cols(), K = c.inner();
  const ConstTensor inp = c.tensor(1), bias = c.tensor(3), addend = c.tensor(4);
  const Tensor out = c.tensor(0);
  if (cuda::gemv_takes(weights.format, c.rows(), K))
    return cuda::gemv(c.context, out, inp, weights, bias, addend, c.rows(), N, K);
  const std::int64_t row_bytes = K * cuda::size_of(inp.type);
  const std::int64_t at_once = std::clamp<std::int64_t>(c.context.scratch_bytes / 2 / row_bytes, 1, N);
  const Tensor wide{c.context.scratch_for<std::byte>(at_once * row_bytes), inp.type};
  const auto from = [](auto tensor, std::int64_t column) {
    return tensor ? from_row(tensor, column, 1) : tensor;
  };
  for (std::int64_t first = 0; first < N; first += at_once) {
    const std::int64_t columns = std::min(at_once, N - first);
    cuda::dequantise(c.context, wide, weights, first, columns, K);
    c.products.run(behind(c.context, at_once * row_bytes), {.M = c.rows(),
                                                            .N = columns,
                                                            .K = K,
                                                            .a = inp,
                                                            .b = wide,
                                                            .out = from(out, first),
                                                            .transpose_b = true,
                                                            .bias = from(bias, first),
                                                            .addend = from(addend, first),
                                                            .ldout = N});
  }
}

void matmul(const Call& c) {
  if (const cuda::Weights weights = c.weights(2); weights.scales != nullptr)
    return matmul_with_quantised_weight(c, weights);
  if (is_gemv(c))
    return cuda::gemv(c.context, c.tensor(0), c.tensor(1),
                      {cuda::WeightFormat::bf16, c.tensor(2).data, nullptr}, c.tensor(3), c.tensor(4),
                      c.rows(), c.cols(), c.inner());
  c.products.run(c.context, {.M = c.rows(),
                             .N = c.cols(),
                             .K = c.inner(),
                             .a = c.tensor(1),
                             .b = c.tensor(2),
                             .out = c.tensor(0),
                             .transpose_b = true,
                             .bias = c.tensor(3),
                             .addend = c.tensor(4),
                             .scale_a = c.scale(1),
                             .scale_b = c.scale(2),
                             .tf32 = c.tf32()});
}

// In fp8 the summed dimension must lie contiguous in both operands (products.h): here that takes the weight's
// transpose, of as many columns at a time as half of the scratch memory holds.
void matmul_backward_input_fp8(const Call& c) {
  const ConstTensor weight = c.tensor(2);
  const std::int64_t N = c.cols(), K = c.inner();
  const std::int64_t fit = c.context.scratch_bytes / 2 / N / cuda::kFp8Multiple * cuda::kFp8Multiple;
  const std::int64_t at_once = std::clamp(fit, cuda::kFp8Multiple, K);
  const Tensor transposed{c.context.scratch_for<std::byte>(at_once * N), weight.type};
  for (std::int64_t column = 0; column < K; column += at_once) {
    const std::int64_t columns = std::min(at_once, K - column);
    cuda::transpose_bytes(c.context, transposed.data, from_row(weight, column, 1).data, N, columns, K);
    const Tensor out = from_row(c.tensor(0), column, 1);
    c.products.run(behind(c.context, at_once * N), {.M = c.rows(),
                                                    .N = columns,
                                                    .K = N,
                                                    .a = c.tensor(1),
                                                    .b = transposed,
                                                    .out = out,
                                                    .transpose_b = true,
                                                    .addend = c.updates(0) ? ConstTensor(out) : ConstTensor(),
                                                    .scale_a = c.scale(1),
                                                    .scale_b = c.scale(2),
                                                    .ldout = K});
  }
}

// The same of both operands, some rows at a time.
void matmul_backward_weight_fp8(const Call& c) {
  const ConstTensor dout = c.tensor(2), inp = c.tensor(3);
  const Tensor dweight = c.tensor(0);
  const std::int64_t N = c.cols(), K = c.inner();
  const std::int64_t fit = c.context.scratch_bytes / 2 / (N + K) / cuda::kFp8Multiple * cuda::kFp8Multiple;
  const std::int64_t padded_rows = cuda::ceil_div(c.rows(), cuda::kFp8Multiple) * cuda::kFp8Multiple;
  const std::int64_t at_once = std::clamp(fit, cuda::kFp8Multiple, padded_rows);
  std::byte* const scratch = c.context.scratch_for<std::byte>(at_once * (N + K));
  const Tensor dout_transposed{scratch, dout.type}, inp_transposed{scratch + at_once * N, inp.type};
  for (std::int64_t row = 0; row < c.rows(); row += at_once) {
    const std::int64_t rows = std::min(at_once, c.rows() - row);
    cuda::transpose_bytes(c.context, dout_transposed.data, from_row(dout, row, N).data, rows, N, N);
    cuda::transpose_bytes(c.context, inp_transposed.data, from_row(inp, row, K).data, rows, K, K);
    c.products.run(behind(c.context, at_once * (N + K)),
                   {.M = N,
                    .N = K,
                    .K = cuda::ceil_div(rows, cuda::kFp8Multiple) * cuda::kFp8Multiple,
                    .a = dout_transposed,
                    .b = inp_transposed,
                    .out = dweight,
                    .transpose_b = true,
                    .addend = dweight,
                    .scale_a = c.scale(2),
                    .scale_b = c.scale(3)});
  }
  if (const Tensor dbias = c.tensor(1))
    cuda::add_column_sums(c.context, dbias, dout, c.scale(2), c.rows(), N);
}

void matmul_backward_input(const Call& c) {
  const Tensor dinp = c.tensor(0);
  const ConstTensor weight = c.tensor(2);
  if (cuda::is_fp8(weight.type)) return matmul_backward_input_fp8(c);
  by_rows_in_type(c, c.tensor(1), weight.type, c.rows(), c.cols(),
                  [&](std::int64_t row, std::int64_t rows, ConstTensor dout, const cuda::Context& context) {
                    const Tensor out = from_row(dinp, row, c.inner());
                    c.products.run(context, {.M = rows,
                                             .N = c.inner(),
                                             .K = c.cols(),
                                             .a = dout,
                                             .b = weight,
                                             .out = out,
                                             .addend = c.updates(0) ? ConstTensor(out) : ConstTensor(),
                                             .tf32 = c.tf32()});
                  });
}

void matmul_backward_weight(const Call& c) {
  const Tensor dweight = c.tensor(0);
  const ConstTensor inp = c.tensor(3);
  if (cuda::is_fp8(inp.type)) return matmul_backward_weight_fp8(c);
  by_rows_in_type(c, c.tensor(2), inp.type, c.rows(), c.cols(),
                  [&](std::int64_t row, std::int64_t rows, ConstTensor dout, const cuda::Context& context) {
                    c.products.run(context, {.M = c.cols(),
                                             .N = c.inner(),
                                             .K = rows,
                                             .a = dout,
                                             .b = from_row(inp, row, c.inner()),
                                             .out = dweight,
                                             .transpose_a = true,
                                             .addend = dweight,
                                             .tf32 = c.tf32()});
                  });
  if (const Tensor dbias = c.tensor(1))
    cuda::add_column_sums(c.context, dbias, c.tensor(2), nullptr, c.rows(), c.cols());
}

// What choose_attention() makes of a GPU's own times goes here: none has been measured.
constexpr cuda::AttentionChoice kAttention{};

// Standard attention as matrix products: for each sequence and group of query heads, whose keys are the same.
class StandardAttention {
 public:
  StandardAttention(const Call& call) : c_(call), s_(call.attention()) {}

  // Calls body(query heads of a key head, head, key head, b) so that all heads are covered by batched
  // products.
  template <class Body>
  void for_each_group(const Body& body) const {
    const std::int64_t heads = s_.H / s_.G;
    for (std::int64_t b = 0; b < s_.B; ++b)
      for (std::int64_t g = 0; g < s_.G; ++g) body(b, g * heads, g);
  }

  std::int64_t width() const { return (s_.H + 2 * s_.G) * s_.D; }
  template <class AnyTensor>
  AnyTensor packed(AnyTensor qkv, std::int64_t b, std::int64_t head) const {
    return at(qkv, b * s_.T * width() + head * s_.D);
  }
  template <class AnyTensor>
  AnyTensor heads(AnyTensor out, std::int64_t b, std::int64_t head) const {
    return at(out, (b * s_.T * s_.H + head) * s_.D);
  }
  template <class AnyTensor>
  AnyTensor scores(AnyTensor all, std::int64_t b, std::int64_t head) const {
    return at(all, (b * s_.H + head) * s_.T * s_.T);
  }

  void forward() const {
    const Tensor out = c_.tensor(0), probabilities = c_.tensor(1);
    const ConstTensor qkv = c_.tensor(2);
    for_each_group([&](std::int64_t b, std::int64_t head, std::int64_t g) {
      cuda::Product p = over_heads(s_.T, s_.T, s_.D);
      p.a = packed(qkv, b, head), p.lda = width(), p.stride_a = s_.D;
      p.b = packed(qkv, b, s_.H + g), p.ldb = width(), p.transpose_b = true;
      p.out = scores(probabilities, b, head), p.stride_out = s_.T * s_.T;
      c_.products.run(c_.context, p);
    });
    cuda::causal_softmax_forward(c_.context, probabilities, scale(), s_.B, s_.H, s_.T);
    const Tensor dropped = c_.tensor(4);
    if (dropped)
      cuda::dropout_forward(c_.context, dropped, c_.as<std::int8_t>(3), probabilities, {},
                            &c_.numbers->dropout, c_.random_stream(), s_.B * s_.H * s_.T, s_.T);
    const ConstTensor weights = dropped ? dropped : probabilities;
    for_each_group([&](std::int64_t b, std::int64_t head, std::int64_t g) {
      cuda::Product p = over_heads(s_.T, s_.D, s_.T);
      p.a = scores(weights, b, head), p.stride_a = s_.T * s_.T;
      p.b = packed(qkv, b, s_.H + s_.G + g), p.ldb = width();
      p.out = heads(out, b, head), p.ldout = s_.H * s_.D, p.stride_out = s_.D;
      c_.products.run(c_.context, p);
    });
  }

  void backward() const {
    const Tensor dqkv = c_.tensor(0), dscores = c_.tensor(1);
    const ConstTensor dout = c_.tensor(2), qkv = c_.tensor(3), probabilities = c_.tensor(4);
    const std::int8_t* const mask = c_.as<std::int8_t>(5);
    const ConstTensor weights = mask != nullptr ? ConstTensor(c_.tensor(6)) : probabilities;
    for_each_group([&](std::int64_t b, std::int64_t head, std::int64_t g) {
      cuda::Product p = over_heads(s_.T, s_.T, s_.D);
      p.a = heads(dout, b, head), p.lda = s_.H * s_.D, p.stride_a = s_.D;
      p.b = packed(qkv, b, s_.H + s_.G + g), p.ldb = width(), p.transpose_b = true;
      p.out = scores(dscores, b, head), p.stride_out = s_.T * s_.T;
      c_.products.run(c_.context, p);
      add_over_heads(packed(dqkv, b, s_.H + s_.G + g), scores(weights, b, head), heads(dout, b, head),
                     s_.H * s_.D);
    });
    if (mask != nullptr)
      cuda::dropout_backward(c_.context, dscores, dscores, mask, &c_.numbers->dropout, 0,
                             s_.B * s_.H * s_.T * s_.T);
    cuda::causal_softmax_backward(c_.context, dscores, probabilities, scale(), s_.B, s_.H, s_.T);
    for_each_group([&](std::int64_t b, std::int64_t head, std::int64_t g) {
      cuda::Product p = over_heads(s_.T, s_.D, s_.T);
      p.a = scores(ConstTensor(dscores), b, head), p.stride_a = s_.T * s_.T;
      p.b = packed(qkv, b, s_.H + g), p.ldb = width();
      p.out = packed(dqkv, b, head), p.ldout = width(), p.stride_out = s_.D;
      c_.products.run(c_.context, p);
      add_over_heads(packed(dqkv, b, s_.H + g), scores(ConstTensor(dscores), b, head), packed(qkv, b, head),
                     width());
    });
  }

 private:
  template <class AnyTensor>
  static AnyTensor at(AnyTensor tensor, std::int64_t element) {
    return from_row(tensor, element, 1);
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(s_.D)); }
  cuda::Product over_heads(std::int64_t M, std::int64_t N, std::int64_t K) const {
    cuda::Product p{.M = M, .N = N, .K = K};
    p.batch = s_.H / s_.G, p.tf32 = c_.tf32();
    return p;
  }
  // out (T, D) of a key head = the sum over its query heads of scores^T (T, T) rows (T, D).
  void add_over_heads(Tensor out, ConstTensor of_scores, ConstTensor rows, std::int64_t row_width) const {
    for (std::int64_t h = 0; h < s_.H / s_.G; ++h) {
      cuda::Product p{.M = s_.T, .N = s_.D, .K = s_.T};
      p.tf32 = c_.tf32();
      p.a = at(of_scores, h * s_.T * s_.T), p.transpose_a = true;
      p.b = at(rows, h * s_.D), p.ldb = row_width;
      p.out = out, p.ldout = width();
      if (h > 0) p.addend = out;
      c_.products.run(c_.context, p);
    }
  }

  const Call& c_;
  kernels::AttentionShape s_;
};

// Those that stand behind the first operand.
std::vector<cuda::GradientTensor> gradients_of(const Call& c) {
  std::vector<cuda::GradientTensor> gradients;
  for (std::size_t i = 1; i < c.operands(); ++i) gradients.push_back({c.tensor(i), c.count(i)});
  return gradients;
}

void squared_norm(const Call& c) {
  const double factor = c.scalar() != 0 ? static_cast<double>(c.scalar()) : 1.0;
  cuda::add_squares(c.context, c.as<cuda::GradientNorm>(0), gradients_of(c), factor);
}

void adamw(const Call& c) {
  constexpr std::size_t kGroup = 5;  // parameter, gradient, two moments, master copy
  std::vector<cuda::AdamWTensor> tensors;
  for (std::size_t i = 1; i + kGroup <= c.operands(); i += kGroup)
    tensors.push_back({c.tensor(i), c.tensor(i + 1), c.f32(i + 2), c.f32(i + 3), c.f32(i + 4), c.count(i),
                       c.random_stream(tensors.size())});
  cuda::adamw(c.context, tensors, &c.as<cuda::GradientNorm>(0)->clip_scale, &c.numbers->adamw, c.decay());
}

void quantise(const Call& c) {
  const bool is_e4m3 = c.scalar() == cuda::largest_of(cuda::Type::e4m3);
  const Fp8Scales::Tensor& to =
      c.fp8.write(c.as<std::byte>(0), is_e4m3 ? cuda::Type::e4m3 : cuda::Type::e5m2);
  cuda::quantise(c.context, {c.as<std::byte>(0), to.type}, to.scale, c.tensor(1), c.count(1));
}

void zero(const Call& c, cuda::Gpu& gpu) {
  for (std::size_t i = 0; i < c.operands(); ++i) gpu.zero(c.as<std::byte>(i), c.bytes(i));
}

using Kernel = void (*)(const Call&);

struct KernelEntry {
  OpKind kind;
  Kernel kernel;
};

// Operands by index, in the order that sim/plan/operation.h lists for the kind.
constexpr KernelEntry kKernels[] = {
    {OpKind::embedding,
     [](const Call& c) {
       cuda::embedding_forward(c.context, c.tensor(0), c.i32(1), c.tensor(2), c.tensor(3), c.i32(4),
                               c.embedding());
     }},
    {OpKind::embedding_backward,
     [](const Call& c) {
       cuda::embedding_backward(c.context, c.tensor(0), c.tensor(1), c.tensor(2), c.i32(3), c.embedding());
     }},
    {OpKind::layernorm,
     [](const Call& c) {
       cuda::layernorm_forward(c.context, c.tensor(0), c.f32(1), c.f32(2), c.tensor(3), c.tensor(4),
                               c.tensor(5), c.scalar(), c.rows(), c.hidden());
     }},
    {OpKind::layernorm_backward,
     [](const Call& c) {
       cuda::layernorm_backward(c.context, c.tensor(0), c.tensor(1), c.tensor(2), c.tensor(3), c.tensor(4),
                                c.tensor(5), c.f32(6), c.f32(7), c.rows(), c.hidden());
     }},
    {OpKind::rmsnorm,
     [](const Call& c) {
       cuda::rmsnorm_forward(c.context, c.tensor(0), c.f32(1), c.tensor(2), c.tensor(3), c.scalar(), c.rows(),
                             c.hidden());
     }},
    {OpKind::rmsnorm_backward,
     [](const Call& c) {
       cuda::rmsnorm_backward(c.context, c.tensor(0), c.tensor(1), c.tensor(2), c.tensor(3), c.tensor(4),
                              c.f32(5), c.rows(), c.hidden());
     }},
    {OpKind::matmul, matmul},
    {OpKind::matmul_backward_input, matmul_backward_input},
    {OpKind::matmul_backward_weight, matmul_backward_weight},
    {OpKind::rope,
     [](const Call& c) { cuda::rope(c.context, c.tensor(0), c.f32(1), c.i32(2), 1.0f, c.rope()); }},
    {OpKind::rope_backward,
     [](const Call& c) { cuda::rope(c.context, c.tensor(0), c.f32(1), nullptr, -1.0f, c.rope()); }},
    {OpKind::attention_flash,
     [](const Call& c) {
       cuda::attention_forward(c.context, kAttention, c.tensor(0), c.f32(1), c.tensor(2), c.attention());
     }},
    {OpKind::attention_flash_backward,
     [](const Call& c) {
       cuda::attention_backward(c.context, kAttention, c.tensor(0), c.tensor(1), c.tensor(2), c.tensor(3),
                                c.f32(4), c.attention());
     }},
    {OpKind::attention_standard, [](const Call& c) { StandardAttention(c).forward(); }},
    {OpKind::attention_standard_backward, [](const Call& c) { StandardAttention(c).backward(); }},
    {OpKind::kv_append,
     [](const Call& c) {
       cuda::kv_append(c.context, cuda::contiguous_cache(c.tensor(0), c.tensor(1), c.capacity(c.count(0))),
                       c.tensor(2), c.i32(3), c.attention());
     }},
    {OpKind::attention_cached,
     [](const Call& c) {
       cuda::attention_cached(c.context, c.tensor(0), c.tensor(1),
                              cuda::contiguous_cache(c.tensor(2), c.tensor(3), c.capacity(c.count(2))),
                              c.i32(4), c.attention());
     }},
    {OpKind::gelu,
     [](const Call& c) { cuda::gelu_forward(c.context, c.tensor(0), c.tensor(1), c.rows() * c.cols()); }},
    {OpKind::gelu_backward,
     [](const Call& c) {
       cuda::gelu_backward(c.context, c.tensor(0), c.tensor(1), c.tensor(2), c.rows() * c.cols());
     }},
    {OpKind::swiglu,
     [](const Call& c) { cuda::swiglu_forward(c.context, c.tensor(0), c.tensor(1), c.rows(), c.cols()); }},
    {OpKind::swiglu_backward,
     [](const Call& c) {
       cuda::swiglu_backward(c.context, c.tensor(0), c.tensor(1), c.tensor(2), c.rows(), c.cols());
     }},
    {OpKind::add,
     [](const Call& c) {
       cuda::add(c.context, c.tensor(0), c.tensor(1), c.tensor(2), c.tensor(3), c.rows(), c.cols());
     }},
    {OpKind::dropout,
     [](const Call& c) {
       cuda::dropout_forward(c.context, c.tensor(0), c.as<std::int8_t>(1), c.tensor(2), c.tensor(3),
                             &c.numbers->dropout, c.random_stream(), c.rows(), c.cols());
     }},
    {OpKind::dropout_backward,
     [](const Call& c) {
       cuda::dropout_backward(c.context, c.tensor(0), c.tensor(1), c.as<std::int8_t>(2), &c.numbers->dropout,
                              0, c.rows() * c.cols());
     }},
    {OpKind::gather_last,
     [](const Call& c) {
       cuda::gather_last(c.context, c.tensor(0), c.tensor(1), c.batch(), c.query_length(), c.cols());
     }},
    {OpKind::cross_entropy,
     [](const Call& c) {
       cuda::cross_entropy_forward_backward(c.context, c.tensor(0), c.f32(1), c.i32(2), c.scalar(),
                                            &c.numbers->loss_scale, c.rows(), c.vocab());
     }},
    {OpKind::sample,
     [](const Call& c) {
       cuda::sample(c.context, c.i32(0), c.f32(1), &c.numbers->sampling, c.rows(), c.vocab());
     }},
    {OpKind::quantise, quantise},
    {OpKind::squared_norm, squared_norm},
    {OpKind::clip_scale,
     [](const Call& c) { cuda::clip_scale(c.context, c.as<cuda::GradientNorm>(0), &c.numbers->adamw); }},
    {OpKind::unscale, [](const Call& c) { cuda::find_overflow(c.context, c.f32(0), gradients_of(c)); }},
    // Not waited for: the update itself looks whether the norm is finite, so that a step can be captured. The
    // host reads the value when the step is over.
    {OpKind::host_read, [](const Call&) {}},
    {OpKind::adamw, adamw},
};

Kernel kernel_of(OpKind kind) {
  for (const KernelEntry& entry : kKernels)
    if (entry.kind == kind) return entry.kernel;
  return nullptr;
}

// Operands from this index on are of work that several devices share: there are no kernels for it.
std::size_t first_unsupported_operand(OpKind kind) {
  switch (kind) {
    case OpKind::swiglu:
      return 2;
    case OpKind::attention_flash:
    case OpKind::swiglu_backward:
      return 3;
    case OpKind::attention_flash_backward:
      return 5;
    case OpKind::cross_entropy:
      return 3;
    default:
      return static_cast<std::size_t>(-1);
  }
}

// Of dropout: a byte an element.
bool is_mask(OpKind kind, std::size_t operand) {
  return (kind == OpKind::dropout && operand == 1) || (kind == OpKind::dropout_backward && operand == 2) ||
         (kind == OpKind::attention_standard && operand == 3) ||
         (kind == OpKind::attention_standard_backward && operand == 5);
}

// cuBLASLt's products in fp8 are of sizes that are multiples of 16; rows are padded where they must be.
bool takes_fp8(const sim::Operation& operation) {
  const bool is_product = operation.kind == OpKind::matmul ||
                          operation.kind == OpKind::matmul_backward_input ||
                          operation.kind == OpKind::matmul_backward_weight;
  return is_product && operation.dims.cols.factor % cuda::kFp8Multiple == 0 &&
         operation.dims.inner.factor % cuda::kFp8Multiple == 0;
}

// A product with a weight in fewer bits than its other operands; its rows must be whole vectors and groups.
bool takes_quantised_weight(const sim::Operation& operation, sim::DType weight) {
  const std::int64_t multiple = weight == sim::DType::int4 ? cuda::kInt4Group : 16;
  return operation.kind == OpKind::matmul && operation.dtype == sim::DType::bf16 && sim::bits(weight) < 16 &&
         operation.dims.inner.factor % multiple == 0;
}

// CUDA's errors as those that the program shows.
template <class Body>
auto on_device(const std::string& name, const Body& body) {
  try {
    return body();
  } catch (const cuda::CudaError& error) {
    throw DeviceError(name + ": " + error.what());
  }
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const CudaDeviceSettings& settings)
      : gpu_(settings.ordinal),
        context_bytes_(in_use().value),
        products_(settings.deterministic),
        library_bytes_(in_use().value - context_bytes_),
        fp8_scales_(gpu_),
        compute_capability_(cuda::Gpu::compute_capability(settings.ordinal)),
        name_(cuda::Gpu::name_of(settings.ordinal)),
        pci_bus_id_(cuda::Gpu::pci_bus_id(settings.ordinal)) {
    context_.stream = gpu_.stream();
    context_.scratch = gpu_.allocate(settings.scratch.value);
    context_.scratch_bytes = settings.scratch.value;
    numbers_ = reinterpret_cast<StepNumbers*>(gpu_.allocate(sizeof(StepNumbers)));
  }
  ~CudaDevice() override {
    for (const auto& [weight, scales] : weight_scales_) gpu_.release(reinterpret_cast<std::byte*>(scales));
    gpu_.release(context_.scratch);
    gpu_.release(reinterpret_cast<std::byte*>(numbers_));
  }

  std::string name() const override { return name_; }
  std::string pci_bus_id() const override { return pci_bus_id_; }

  std::span<const sim::DType> dtypes() const override { return cuda_dtypes(compute_capability_); }

  bool supports(const sim::Operation& operation, std::span<const sim::DType> operands) const override {
    if (operation.kind != OpKind::zero && kernel_of(operation.kind) == nullptr) return false;
    const auto runs_in = [](sim::DType type) {
      return type == sim::DType::fp32 || type == sim::DType::tf32 || type == sim::DType::bf16 ||
             type == sim::DType::fp16;
    };
    if (operation.dims.window != 0) return false;
    if (operation.dtype == sim::DType::fp8) return takes_fp8(operation);
    if (!runs_in(operation.dtype)) return false;
    const std::size_t unsupported = first_unsupported_operand(operation.kind);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operation.operands[i].buffer == sim::kNoBuffer) continue;
      if (i >= unsupported) return false;
      const bool holds = runs_in(operands[i]) || operands[i] == sim::DType::int32 ||
                         operands[i] == sim::DType::fp64 ||
                         (i == 2 && takes_quantised_weight(operation, operands[i])) ||
                         (is_mask(operation.kind, i) && operands[i] == sim::DType::int8) ||
                         (operation.kind == OpKind::quantise && i == 0 && operands[i] == sim::DType::fp8);
      if (!holds && operation.kind != OpKind::zero) return false;
      if (operation.kind == OpKind::sample && sim::bits(operands[i]) == 16) return false;  // logits are fp32
    }
    return true;
  }

  std::span<const sim::DType> weight_dtypes() const override {
    static constexpr sim::DType kTypes[] = {sim::DType::int8, sim::DType::fp8, sim::DType::int4};
    return kTypes;
  }
  void set_weight_scales(const std::byte* weight, std::span<const float> scales) override {
    on_device(name_, [&] {
      float*& place = weight_scales_[weight];
      if (place != nullptr) gpu_.release(reinterpret_cast<std::byte*>(place));
      const std::int64_t before = in_use().value;
      place = reinterpret_cast<float*>(gpu_.allocate(static_cast<std::int64_t>(scales.size_bytes())));
      scale_bytes_ += in_use().value - before;
      gpu_.copy_to_device(reinterpret_cast<std::byte*>(place), std::as_bytes(scales));
    });
  }

  sim::Bytes available() const override { return {gpu_.memory().free}; }
  // The context, the kernels' code and cuBLASLt's own memory included; and what other processes hold, if any.
  sim::Bytes in_use() const override {
    const cuda::Gpu::Memory memory = gpu_.memory();
    return {memory.total - memory.free};
  }
  sim::Bytes resident(const std::byte*, sim::Bytes size) const override { return size; }
  // The code of kernels is loaded when they first run: it is part of the rest, as is what others take
  // meanwhile.
  std::vector<PlatformMemory> platform_memory() const override {
    return {{"platform.context", {context_bytes_}},
            {"platform.matrix_library", {library_bytes_}},
            {"platform.kernel_scratch", {context_.scratch_bytes}},
            {"platform.weight_scales", {scale_bytes_}},
            {"platform.graphs", {graph_bytes_}}};
  }

  std::byte* allocate(sim::Bytes size) override {
    return on_device(name_, [&] {
      try {
        return gpu_.allocate(size.value);
      } catch (const cuda::OutOfMemory&) {
        const cuda::Gpu::Memory memory = gpu_.memory();
        throw cuda::CudaError("no " + gib(size.value) + " of memory are left: " + gib(memory.free) + " of " +
                              gib(memory.total) + " are free, other processes and this one hold the rest");
      }
    });
  }
  void release(std::byte* memory, sim::Bytes) noexcept override { gpu_.release(memory); }
  void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
    on_device(name_, [&] { gpu_.copy_to_device(to, from); });
  }
  void copy_from_device(std::span<std::byte> to, const std::byte* from) override {
    on_device(name_, [&] { gpu_.copy_from_device(to, from); });
  }

  void begin(const RunSettings& settings) override {
    const StepNumbers numbers{
        cuda::adamw_step(settings.adamw, settings.max_gradient_norm, settings.loss_scale),
        {settings.sampling, settings.sampling_step},
        {settings.dropout, static_cast<std::uint32_t>(settings.adamw.step), settings.dropout_seed},
        settings.loss_scale > 0 ? settings.loss_scale : 1.0f};
    on_device(name_, [&] {
      gpu_.copy_to_device(reinterpret_cast<std::byte*>(numbers_), std::as_bytes(std::span(&numbers, 1)));
    });
  }

  void run(const BoundOperation& operation, const RunSettings&) override {
    on_device(name_, [&] {
      const Call call(operation, context_, products_, fp8_scales_, weight_scales_, numbers_);
      if (operation.operation->kind == OpKind::zero)
        zero(call, gpu_);
      else
        kernel_of(operation.operation->kind)(call);
    });
  }

  bool can_replay() const override { return true; }
  void begin_capture() override {
    on_device(name_, [&] {
      before_capture_ = in_use().value;  // CUDA forbids some questions between the two
      gpu_.begin_capture();
    });
  }
  void end_capture(std::size_t number) override {
    on_device(name_, [&] {
      gpu_.end_capture(number);
      graph_bytes_ += in_use().value - before_capture_;
    });
  }
  void replay(std::size_t number) override {
    on_device(name_, [&] { gpu_.replay(number); });
  }

  void record(std::size_t index) override {
    on_device(name_, [&] { gpu_.record(index); });
  }
  void synchronise() override {
    on_device(name_, [&] { gpu_.synchronise(); });
  }
  // Sums of neighbours' distances: CUDA gives them in fp32, which would lose microseconds over a long
  // section.
  void stamps(std::span<double> seconds) const override {
    on_device(name_, [&] {
      seconds[0] = 0;
      for (std::size_t i = 1; i < seconds.size(); ++i)
        seconds[i] = seconds[i - 1] + gpu_.seconds_between(i - 1, i);
    });
  }

 private:
  // "1.5 GiB". Here, since the backend links nothing of sim/.
  static std::string gib(std::int64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (std::int64_t{1} << 30));
    return text;
  }

  // Members are initialised in this order: each measures what the one before has taken.
  cuda::Gpu gpu_;
  std::int64_t context_bytes_;
  cuda::Products products_;
  std::int64_t library_bytes_, graph_bytes_ = 0, before_capture_ = 0, scale_bytes_ = 0;
  Fp8Scales fp8_scales_;
  WeightScales weight_scales_;
  int compute_capability_;
  cuda::Context context_;
  StepNumbers* numbers_ = nullptr;
  std::string name_, pci_bus_id_;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(const CudaDeviceSettings& settings) {
  const std::size_t gpus = cuda_gpus().size();
  if (settings.ordinal < 0 || static_cast<std::size_t>(settings.ordinal) >= gpus)
    throw NoDevice("there is no GPU number " + std::to_string(settings.ordinal) + "; this machine has " +
                   std::to_string(gpus) + ", counted from 0");
  return on_device("the GPU", [&] { return std::make_unique<CudaDevice>(settings); });
}

std::span<const sim::DType> cuda_dtypes(int compute_capability) {
  static constexpr sim::DType kTypes[] = {sim::DType::bf16, sim::DType::fp16, sim::DType::fp32,
                                          sim::DType::tf32, sim::DType::fp8};
  constexpr int kFirstWithFp8 = 89;
  return std::span(kTypes).first(std::size(kTypes) - (compute_capability < kFirstWithFp8 ? 1 : 0));
}

std::vector<std::string> cuda_gpus() {
  try {
    std::vector<std::string> names;
    for (int ordinal = 0; ordinal < cuda::Gpu::count(); ++ordinal)
      names.push_back(cuda::Gpu::name_of(ordinal));
    return names;
  } catch (const cuda::CudaError& error) {
    throw NoDevice(std::string("no GPU can be used: ") + error.what());
  }
}

}  // namespace runtime

extern "C" __attribute__((visibility("default"))) const runtime::CudaBackend* ridgepoint_cuda_backend() {
  static constexpr runtime::CudaBackend kBackend{runtime::kCudaBackendVersion, runtime::cuda_gpus,
                                                 runtime::make_cuda_device};
  return &kBackend;
}
