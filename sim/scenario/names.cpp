#include "sim/enum_names.h"
#include "sim/scenario/implementation.h"
#include "sim/scenario/strategy.h"
#include "sim/scenario/workload.h"

namespace sim {
namespace {

constexpr std::array<EnumName<Task>, 2> kTasks{{{Task::train, "train"}, {Task::generate, "generate"}}};
constexpr std::array<EnumName<Recompute>, 3> kRecomputes{
    {{Recompute::none, "none"}, {Recompute::selective, "selective"}, {Recompute::full, "full"}}};
constexpr std::array<EnumName<AttentionKind>, 2> kAttentionKinds{
    {{AttentionKind::flash, "flash"}, {AttentionKind::standard, "standard"}}};

}  // namespace

std::string_view name(Task task) {
  return name_in(kTasks, task);
}
std::string_view name(Recompute recompute) {
  return name_in(kRecomputes, recompute);
}
std::string_view name(AttentionKind kind) {
  return name_in(kAttentionKinds, kind);
}
std::optional<Task> task_from_name(std::string_view text) {
  return value_in(kTasks, text);
}
std::optional<Recompute> recompute_from_name(std::string_view text) {
  return value_in(kRecomputes, text);
}
std::optional<AttentionKind> attention_kind_from_name(std::string_view text) {
  return value_in(kAttentionKinds, text);
}

}  // namespace sim
