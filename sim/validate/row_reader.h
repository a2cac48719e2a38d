// The kinds of tables that can be predicted, one file each: the columns that identify the kind, and how its
// rows are predicted.
#pragma once
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/validate/row.h"

namespace sim {

struct Prediction {
  std::string_view column;              // a measured one
  double value = 0, low = 0, high = 0;  // 90 % band
  std::string_view words{};             // instead of a number: an outcome
  std::optional<std::size_t> table{};   // index in the hardware's calibration, as in MeasuredTime
};

struct RowReader {
  std::string_view what;                 // "kernels"
  std::vector<std::string_view> needs;   // columns that make a table one of this kind
  std::vector<MeasuredColumn> measured;  // a row is judged by the first one that it has
  std::string_view source = "source";    // column that says who measured
  std::vector<Prediction> (*predict)(const TableRow& row) = nullptr;  // throws CannotPredict
};

RowReader product_rows();      // matrix products: gpu, framework, dtype, m, n, k
RowReader kernel_rows();       // kernels of any sort: gpu, kernel, dtype, shape
RowReader inference_rows();    // generation and serving: model_name, gpu, framework, batch, lengths
RowReader collective_rows();   // collective, num_gpus, message_bytes
RowReader training_rows();     // steps of training: framework, gpu, num_gpus, the model, the strategy
RowReader outcome_rows();      // whether runs fit: model_name, num_gpus, tp, outcome
RowReader memory_rows();       // peaks of device memory: gpu, component, kind, memory_gb
RowReader memory_step_rows();  // peak memory of steps, by category: step, parameter_gib, ..., total_gib
RowReader own_rows();          // what `ridgepoint measure` ran: what, series, at, and the prediction it made
RowReader cost_rows();         // whole training runs: model_name, gpu, tokens_t, gpu_hours

// The reader whose columns the table has; null where there is none.
const RowReader* reader_of(const std::vector<std::string>& header);
// "kernels (columns kernel, dtype, ...); ...": for messages.
std::string readable_tables();

}  // namespace sim
