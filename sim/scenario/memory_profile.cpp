#include "sim/scenario/memory_profile.h"

#include <array>

#include "sim/enum_names.h"

namespace sim {
namespace {

constexpr std::array<EnumName<WeightGradient>, 4> kWeightGradients{
    {{WeightGradient::accumulated, "accumulated"},
     {WeightGradient::hooked, "hooked"},
     {WeightGradient::kept, "kept"},
     {WeightGradient::fresh, "fresh"}}};
constexpr std::array<EnumName<AllocatorKind>, 3> kAllocators{{{AllocatorKind::planned, "planned"},
                                                              {AllocatorKind::caching, "caching"},
                                                              {AllocatorKind::expandable, "expandable"}}};

}  // namespace

std::string_view name(WeightGradient kind) {
  return name_in(kWeightGradients, kind);
}
std::optional<WeightGradient> weight_gradient_from_name(std::string_view text) {
  return value_in(kWeightGradients, text);
}
std::string_view name(AllocatorKind kind) {
  return name_in(kAllocators, kind);
}
std::optional<AllocatorKind> allocator_from_name(std::string_view text) {
  return value_in(kAllocators, text);
}

}  // namespace sim
