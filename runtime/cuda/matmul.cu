#include <algorithm>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/quantise.h"
#include "runtime/cuda/matmul.h"

namespace runtime {
namespace {

using cuda::ConstTensor;
using cuda::Tensor;

// Matrix products take both operands in one type. A gradient in fp32 where weights are bf16 (logits are
// kept in fp32) goes through scratch memory, as many rows at a time as fit: calls body(first row, rows,
// tensor).
template <class Body>
void by_rows_in_type(const Call& call, ConstTensor wide, cuda::Type type, std::int64_t rows,
                     std::int64_t cols, const Body& body) {
  if (wide.type == type) return body(0, rows, wide, call.context);
  const std::int64_t row_bytes = cols * cuda::size_of(type);
  const std::int64_t half = call.context.scratch_bytes / 2;
  const std::int64_t at_once = std::clamp<std::int64_t>(half / row_bytes, 1, rows);
  const Tensor narrow{call.context.scratch_for<std::byte>(at_once * row_bytes), type};
  const cuda::Context rest = call.context.behind(at_once * row_bytes);
  for (std::int64_t row = 0; row < rows; row += at_once) {
    const std::int64_t count = std::min(at_once, rows - row);
    cuda::convert(call.context, narrow, {wide.as<float>() + row * cols, wide.type}, count * cols);
    body(row, count, ConstTensor(narrow), rest);
  }
}

cuda::Product product_of(const Call& c) {
  return {.M = c.rows(),
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
          .tf32 = c.tf32()};
}

// cuBLASLt's GELU has an approximate tanh, whose error is below what 16 bits round off; fp32 keeps the exact
// kernel. The argument of cuBLASLt's GELU lies in rows of whole vectors of 16 bytes.
bool fits_gelu(cuda::Type type, std::int64_t columns) {
  return cuda::size_of(type) == 2 && columns % 8 == 0;
}

// Weights in fewer bits. Products of up to kNarrowRows rows read them as they are. For more rows, as a prompt
// has them, some of the weight's rows at a time become 16-bit numbers in scratch memory.
void matmul_with_quantised_weight(const Call& c, const cuda::Weights& weights) {
  const std::int64_t N = c.cols(), K = c.inner();
  const ConstTensor inp = c.tensor(1), bias = c.tensor(3), addend = c.tensor(4);
  const Tensor out = c.tensor(0);
  // One row gives tensor cores nothing to do. With more rows, widening the weights for each row would cost
  // more than reading their bytes.
  if (c.rows() > 1 && cuda::gemv_tensor_cores_takes(weights.format, c.rows(), K))
    return cuda::gemv_tensor_cores(c.context, out, inp, weights, bias, addend, c.rows(), N, K);
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
    c.products.run(c.context.behind(at_once * row_bytes), {.M = c.rows(),
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

// In fp8 the summed dimension must be contiguous in both operands (products.h). Here that takes the weight's
// transpose, of as many columns at a time as fit in half of the scratch memory.
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
    c.products.run(c.context.behind(at_once * N), {.M = c.rows(),
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
    c.products.run(c.context.behind(at_once * (N + K)),
                   {.M = N,
                    .N = K,
                    .K = cuda::ceil_div(rows, cuda::kFp8Multiple) * cuda::kFp8Multiple,
                    .a = dout_transposed,
                    .b = inp_transposed,
                    .out = dweight,
                    .transpose_b = true,
                    .addend = row > 0 || c.updates(0) ? ConstTensor(dweight) : ConstTensor(),
                    .scale_a = c.scale(2),
                    .scale_b = c.scale(3)});
  }
  if (const Tensor dbias = c.tensor(1))
    cuda::add_column_sums(c.context, dbias, dout, c.scale(2), c.rows(), N, c.updates(1));
}

// The bias's gradient as the product's epilogue, which sums what the product reads anyway. The epilogue only
// writes it: where it is to be added, this is left to a pass over (N).
bool weight_and_bias_at_once(const Call& c) {
  const Tensor dweight = c.tensor(0), dbias = c.tensor(1);
  const ConstTensor dout = c.tensor(2), inp = c.tensor(3);
  if (!dbias || dbias.type != dweight.type || dout.type != inp.type) return false;
  const std::int64_t bytes = c.updates(1) ? c.cols() * cuda::size_of(dbias.type) : 0;
  const Tensor sums = c.updates(1) ? Tensor{c.context.scratch_for<std::byte>(bytes), dbias.type} : dbias;
  const cuda::Context rest = c.context.behind(bytes);
  const cuda::Product plain{.M = c.cols(),
                            .N = c.inner(),
                            .K = c.rows(),
                            .a = dout,
                            .b = inp,
                            .out = dweight,
                            .transpose_a = true,
                            .addend = c.updates(0) ? ConstTensor(dweight) : ConstTensor(),
                            .tf32 = c.tf32()};
  cuda::Product fused = plain;
  fused.epilogue = cuda::Epilogue::row_sums;
  fused.row_sums = sums;
  const auto in_a_pass = [&](const cuda::Context& context) {
    cuda::add_column_sums(context, sums, dout, nullptr, c.rows(), c.cols(), c.updates(1));
  };
  if (!c.products.run_if_faster(rest, fused, plain, in_a_pass)) return false;
  if (c.updates(1)) cuda::add(rest, dbias, dbias, sums, {}, 1, c.cols());
  return true;
}

}  // namespace

// A product of one row, as decoding has it, is bound by reading the weights: it has a kernel of its own.
bool is_one_row(const Call& c) {
  const Tensor out = c.tensor(0), addend = c.tensor(4);
  return c.rows() == 1 && c.tensor(1).type == cuda::Type::bf16 &&
         (!addend || addend.type == cuda::Type::bf16) && (out.type == cuda::Type::bf16 || !addend) &&
         cuda::gemv_takes(c.weights().format, c.rows(), c.inner());
}

void matmul(const Call& c) {
  if (const cuda::Weights weights = c.weights(); weights.scales != nullptr)
    return matmul_with_quantised_weight(c, weights);
  if (is_one_row(c))
    return cuda::gemv(c.context, c.tensor(0), c.tensor(1),
                      {cuda::WeightFormat::bf16, c.tensor(2).data, nullptr}, c.tensor(3), c.tensor(4),
                      c.rows(), c.cols(), c.inner());
  c.products.run(c.context, product_of(c));
}

bool matmul_and_gelu(const Call& c, const Call& gelu) {
  const Tensor pre_activation = c.tensor(0), out = gelu.tensor(0);
  const ConstTensor bias = c.tensor(3);
  if (gelu.tensor(1).data != pre_activation.data || c.weights().scales != nullptr || is_one_row(c))
    return false;
  if (cuda::is_fp8(c.tensor(1).type) || c.tensor(4) || out.type != pre_activation.type ||
      (bias && bias.type != out.type) || !fits_gelu(out.type, c.cols()))
    return false;
  const cuda::Product plain = product_of(c);
  cuda::Product fused = plain;
  fused.epilogue = cuda::Epilogue::gelu;
  fused.out = out;
  fused.pre_activation = pre_activation;
  return c.products.run_if_faster(c.context, fused, plain, [&](const cuda::Context& context) {
    cuda::gelu_forward(context, out, pre_activation, gelu.rows() * gelu.cols());
  });
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

bool matmul_backward_input_and_gelu(const Call& c, const Call& gelu) {
  const Tensor dinp = gelu.tensor(0), pre_activation = gelu.tensor(2);
  const ConstTensor dout = c.tensor(1), weight = c.tensor(2);
  // Only in place: then nobody is left to read the product's own result, which is not written.
  if (c.tensor(0).data != dinp.data || gelu.tensor(1).data != dinp.data || c.updates(0)) return false;
  if (cuda::is_fp8(weight.type) || dout.type != weight.type || pre_activation.type != dinp.type ||
      !fits_gelu(dinp.type, c.inner()))
    return false;
  const cuda::Product plain{
      .M = c.rows(), .N = c.inner(), .K = c.cols(), .a = dout, .b = weight, .out = dinp, .tf32 = c.tf32()};
  cuda::Product fused = plain;
  fused.epilogue = cuda::Epilogue::gelu_gradient;
  fused.pre_activation = pre_activation;
  return c.products.run_if_faster(c.context, fused, plain, [&](const cuda::Context& context) {
    cuda::gelu_backward(context, dinp, dinp, pre_activation, gelu.rows() * gelu.cols());
  });
}

void matmul_backward_weight(const Call& c) {
  const Tensor dweight = c.tensor(0);
  const ConstTensor inp = c.tensor(3);
  if (cuda::is_fp8(inp.type)) return matmul_backward_weight_fp8(c);
  if (weight_and_bias_at_once(c)) return;
  by_rows_in_type(c, c.tensor(2), inp.type, c.rows(), c.cols(),
                  [&](std::int64_t row, std::int64_t rows, ConstTensor dout, const cuda::Context& context) {
                    c.products.run(context,
                                   {.M = c.cols(),
                                    .N = c.inner(),
                                    .K = rows,
                                    .a = dout,
                                    .b = from_row(inp, row, c.inner()),
                                    .out = dweight,
                                    .transpose_a = true,
                                    .addend = row > 0 || c.updates(0) ? ConstTensor(dweight) : ConstTensor(),
                                    .tf32 = c.tf32()});
                  });
  if (const Tensor dbias = c.tensor(1))
    cuda::add_column_sums(c.context, dbias, c.tensor(2), nullptr, c.rows(), c.cols(), c.updates(1));
}

}  // namespace runtime
