// The hardware and the tables that a row's GPU is predicted by.
#pragma once
#include <string_view>

#include "sim/cost/calibration.h"
#include "sim/validate/row_reader.h"

namespace sim {

// The calibration preset, with its tables of a GPU, that the free text of a table means; loaded once. Throws
// CannotPredict where no preset or no calibration is meant.
const Calibration& calibrated_device(std::string_view name);

// "bfloat16", "fp16/bf16", "fp8 (128-block scaled)", of a column. Throws CannotPredict.
DType dtype_of(std::string_view column, std::string_view text);

// A time as a prediction in the given unit, and as a rate, of which the longest time makes the lowest.
Prediction as_time(std::string_view column, const MeasuredTime& time, double seconds_of_unit);
Prediction as_rate(std::string_view column, const MeasuredTime& time, double amount);

}  // namespace sim
