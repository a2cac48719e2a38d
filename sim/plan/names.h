// The words for enumerations of the plan, read back: the inverse of name() in operation.h and plan.h.
#pragma once
#include <optional>
#include <string_view>

#include "sim/plan/plan.h"

namespace sim {

std::optional<OpKind> op_kind_from_name(std::string_view text);
std::optional<BufferClass> buffer_class_from_name(std::string_view text);
std::optional<Phase> phase_from_name(std::string_view text);

}  // namespace sim
