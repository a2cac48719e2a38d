// Writes a comparison for a person or a program.
#pragma once
#include <string>

#include "app/cli/flags.h"
#include "sim/report/compare.h"

namespace app::cli {

// "41 of 41 measured operations are joined with predicted ones, 41 of 41 the reverse."
std::string join_sentence(const sim::Comparison& comparison);

// The join, the step time and the memory in three lines: the totals of a table of operations.
std::string comparison_summary(const sim::Comparison& comparison);

std::string comparison_as(const sim::Comparison& comparison, Format format);

}  // namespace app::cli
