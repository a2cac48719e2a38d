#include <algorithm>

#include "sim/validate/calibrated_device.h"

namespace sim {
namespace {

constexpr double kMicrosecond = 1e-6, kGiga = 1e9;
// A bandwidth that is quoted without a size is that of large messages.
constexpr double kLargeMessage = 16.0 * 1024 * 1024 * 1024;

CollectiveOperation operation_of(std::string_view text) {
  if (text == "all_reduce" || text == "allreduce") return CollectiveOperation::all_reduce;
  if (text == "all_gather" || text == "allgather") return CollectiveOperation::all_gather;
  if (text == "reduce_scatter" || text == "reducescatter") return CollectiveOperation::reduce_scatter;
  if (text == "all_to_all" || text == "alltoall") return CollectiveOperation::all_to_all;
  if (text == "sendrecv" || text == "send_recv" || text == "p2p") return CollectiveOperation::send_receive;
  throw CannotPredict("collective \"" + std::string(text) +
                      "\" is none of all_reduce, all_gather, reduce_scatter, alltoall, sendrecv");
}

std::vector<Prediction> predict(const TableRow& row) {
  const CollectiveOperation operation = operation_of(row.text("collective"));
  const Calibration& device = calibrated_device(row.text("gpu"));
  const int ranks = static_cast<int>(row.count("num_gpus"));
  if (ranks < 2) throw CannotPredict("one GPU has nobody to communicate with");
  const int of_node = std::max(1, device.hardware.devices_per_node);
  const int nodes =
      static_cast<int>(row.count_if_given("num_nodes").value_or((ranks + of_node - 1) / of_node));
  const std::optional<double> given = row.number_if_given("message_bytes");
  if (given && !(*given > 0)) throw CannotPredict("message_bytes must be above 0");
  const CollectiveShape shape{.operation = operation,
                              .bytes = given.value_or(kLargeMessage),
                              .ranks = ranks,
                              .ranks_per_node = std::max(1, (ranks + nodes - 1) / nodes)};
  const auto time = collective_time(*device.gpu, device.hardware, shape, row.text("library"));
  if (!time) throw CannotPredict("this collective was not measured on the gpu");
  std::vector<Prediction> predictions;
  if (given) predictions.push_back(as_time("time_us", *time, kMicrosecond));
  predictions.push_back(as_rate("algbw_gbps", *time, shape.bytes / kGiga));
  predictions.push_back(as_rate("busbw_gbps", *time, bus_factor(operation, ranks) * shape.bytes / kGiga));
  return predictions;
}

}  // namespace

RowReader collective_rows() {
  return {.what = "collectives",
          .needs = {"gpu", "collective", "num_gpus", "message_bytes"},
          .measured = {{"time_us"}, {"busbw_gbps", true}, {"algbw_gbps", true}},
          .predict = predict};
}

}  // namespace sim
