// The hardware and the tables with which a row's GPU is predicted.
#pragma once
#include <string_view>

#include "sim/cost/calibration.h"
#include "sim/validate/row_reader.h"

namespace sim {

// The calibration preset, with its tables, of the GPU that a table's free text means; loaded once. Throws
// CannotPredict where no preset, or no calibration, matches the text.
const Calibration& calibrated_device(std::string_view name);

// Reads a type from a column's text: "bfloat16", "fp16/bf16", "fp8 (128-block scaled)". Throws CannotPredict.
DType dtype_of(std::string_view column, std::string_view text);

// A time as a prediction in a unit, and as a rate of `amount`; the longest time gives the lowest rate.
Prediction as_time(std::string_view column, const MeasuredTime& time, double seconds_of_unit);
Prediction as_rate(std::string_view column, const MeasuredTime& time, double amount);

}  // namespace sim
