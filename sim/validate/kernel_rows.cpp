#include "sim/validate/calibrated_device.h"

namespace sim {
namespace {

constexpr double kMillisecond = 1e-3, kTera = 1e12, kGiga = 1e9;

std::vector<Prediction> rates(const MeasuredTime& time, double flops, double bytes) {
  std::vector<Prediction> predictions{as_time("latency_ms", time, kMillisecond)};
  if (flops > 0) predictions.push_back(as_rate("tflops", time, flops / kTera));
  if (bytes > 0) predictions.push_back(as_rate("bandwidth_gbps", time, bytes / kGiga));
  return predictions;
}

std::vector<Prediction> predict_product(const TableRow& row, const Calibration& device, bool grouped) {
  // Groups share no weights, but their rows fill the chip together.
  const double groups = grouped ? row.positive("batch") : 1;
  const ProductShape shape{groups * row.positive("m"), row.positive("n"), row.positive("k"),
                           dtype_of("dtype", row.text("dtype"))};
  const auto time = product_time(*device.gpu, device.hardware, shape, row.text("library"));
  if (!time) throw CannotPredict("no product of this dtype was measured on the gpu");
  const double operand = static_cast<double>(bits(shape.dtype)) / 8, result = 2;
  const double bytes =
      operand * (shape.m + groups * shape.n) * shape.k + result * shape.m * shape.n;  // each read once
  return rates(*time, 2 * shape.m * shape.n * shape.k, bytes);
}

MeasuredKernel attention_kernel(std::string_view kernel, std::string_view pass) {
  if (kernel == "attention prefill") return MeasuredKernel::attention_prefill;
  if (kernel == "attention decode") return MeasuredKernel::attention_decode;
  if (pass == "bwd") return MeasuredKernel::attention_backward;
  return pass == "fwd+bwd" ? MeasuredKernel::attention_forward_backward : MeasuredKernel::attention_forward;
}

std::vector<Prediction> predict_attention(const TableRow& row, const Calibration& device) {
  const MeasuredKernel kernel = attention_kernel(row.text("kernel"), row.text("pass"));
  const double heads = row.positive("heads");
  AttentionShape shape{.batch = row.positive("batch"),
                       .heads = heads,
                       .kv_heads = row.number_if_given("kv_heads").value_or(heads),
                       .head_dim = row.positive("head_dim"),
                       .query_length = row.positive("seq_q"),
                       .kv_length = row.positive("seq_kv"),
                       .causal = row.text("causal") == "y",
                       .dtype = dtype_of("dtype", row.text("dtype"))};
  if (!(shape.kv_heads > 0)) throw CannotPredict("kv_heads must be above 0");
  const bool decode = kernel == MeasuredKernel::attention_decode;
  if (decode) shape.causal = false;  // one query sees every key
  auto time = attention_time(*device.gpu, device.hardware, kernel, shape, row.text("library"));
  if (!time) throw CannotPredict("no attention of this pass and dtype was measured on the gpu");
  const double cache = 2 * 2 * shape.batch * shape.kv_heads * shape.kv_length * shape.head_dim;
  return rates(*time, decode ? 0 : attention_flops(kernel, shape).value, decode ? cache : 0);
}

std::vector<Prediction> predict(const TableRow& row) {
  const std::string_view kernel = row.text("kernel");
  const bool grouped = kernel.starts_with("grouped GEMM"), product = kernel.starts_with("GEMM") || grouped;
  const bool attention =
      kernel == "attention" || kernel == "attention prefill" || kernel == "attention decode";
  if (!product && !attention)
    throw CannotPredict("kernel \"" + std::string(kernel) + "\" is neither a GEMM nor attention");
  const Calibration& device = calibrated_device(row.text("gpu"));
  return product ? predict_product(row, device, grouped) : predict_attention(row, device);
}

}  // namespace

RowReader kernel_rows() {
  return {.what = "kernels",
          .needs = {"gpu", "kernel", "dtype", "library"},
          .measured = {{"latency_ms"}, {"tflops", true}, {"bandwidth_gbps", true}},
          .predict = predict};
}

}  // namespace sim
