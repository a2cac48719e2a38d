#include "sim/enum_names.h"
#include "sim/scenario/implementation.h"
#include "sim/scenario/strategy.h"
#include "sim/scenario/workload.h"

namespace sim {
namespace {

constexpr std::array<EnumName<Task>, 2> kTasks{{{Task::train, "train"}, {Task::generate, "generate"}}};
constexpr std::array<EnumName<Recompute>, 5> kRecomputes{{{Recompute::none, "none"},
                                                          {Recompute::selective, "selective"},
                                                          {Recompute::full, "full"},
                                                          {Recompute::sqrt, "sqrt"},
                                                          {Recompute::operations, "operations"}}};
constexpr std::array<EnumName<ContextParallelComm>, 3> kContextParallelComms{
    {{ContextParallelComm::all_gather, "all_gather"},
     {ContextParallelComm::ring, "ring"},
     {ContextParallelComm::all_to_all, "all_to_all"}}};
constexpr std::array<EnumName<ExpertDispatch>, 2> kExpertDispatches{
    {{ExpertDispatch::each_expert, "each_expert"}, {ExpertDispatch::each_node, "each_node"}}};
constexpr std::array<EnumName<Optimizer>, 6> kOptimizers{{{Optimizer::adamw, "adamw"},
                                                          {Optimizer::adamw_8bit, "adamw_8bit"},
                                                          {Optimizer::adafactor, "adafactor"},
                                                          {Optimizer::muon, "muon"},
                                                          {Optimizer::sgd, "sgd"},
                                                          {Optimizer::lion, "lion"}}};
constexpr std::array<EnumName<FrozenWeights>, 4> kFrozenWeights{{{FrozenWeights::as_dtype, "as_dtype"},
                                                                 {FrozenWeights::int8, "int8"},
                                                                 {FrozenWeights::nf4, "nf4"},
                                                                 {FrozenWeights::nf4_double, "nf4_double"}}};
constexpr std::array<EnumName<AttentionKind>, 2> kAttentionKinds{
    {{AttentionKind::flash, "flash"}, {AttentionKind::standard, "standard"}}};

}  // namespace

std::string_view name(Task task) {
  return name_in(kTasks, task);
}
std::string_view name(Recompute recompute) {
  return name_in(kRecomputes, recompute);
}
std::string_view name(ContextParallelComm comm) {
  return name_in(kContextParallelComms, comm);
}
std::string_view name(ExpertDispatch dispatch) {
  return name_in(kExpertDispatches, dispatch);
}
std::string_view name(Optimizer optimizer) {
  return name_in(kOptimizers, optimizer);
}
std::string_view name(FrozenWeights weights) {
  return name_in(kFrozenWeights, weights);
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
std::optional<ContextParallelComm> context_parallel_comm_from_name(std::string_view text) {
  return value_in(kContextParallelComms, text);
}
std::optional<ExpertDispatch> expert_dispatch_from_name(std::string_view text) {
  return value_in(kExpertDispatches, text);
}
std::optional<Optimizer> optimizer_from_name(std::string_view text) {
  return value_in(kOptimizers, text);
}
std::optional<AttentionKind> attention_kind_from_name(std::string_view text) {
  return value_in(kAttentionKinds, text);
}

}  // namespace sim
