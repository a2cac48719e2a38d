#include "sim/validate/calibrated_device.h"

namespace sim {
namespace {

std::vector<Prediction> predict(const TableRow& row) {
  const Calibration& device = calibrated_device(row.text("gpu"));
  const ProductShape shape{row.positive("m"), row.positive("n"), row.positive("k"),
                           dtype_of("dtype", row.text("dtype"))};
  const auto time = product_time(*device.gpu, device.hardware, shape, row.text("framework"));
  if (!time) throw CannotPredict("no product of this dtype was measured on the gpu");
  return {as_time("latency_ms", *time, 1e-3)};
}

}  // namespace

RowReader product_rows() {
  return {.what = "matrix products",
          .needs = {"gpu", "dtype", "m", "n", "k", "latency_ms"},
          .measured = {{"latency_ms"}},
          .source = "framework",
          .predict = predict};
}

}  // namespace sim
