// Which fields searches over strategies and over ways to serve have values for. Included by .cpp files only.
#pragma once
#include <string_view>

#include "sim/scenario/fields.h"

namespace sim {

// Calls visit(member, values) for each searched field, in the order in which candidates are counted. A value
// that is no field of the scenario, such as "devices", has a word instead of a member.
inline constexpr std::string_view kDevicesOfSpace = "devices";
template <class Space, class Visit>
void for_each_searched(Space& space, const Visit& visit) {
  visit(kDevicesOfSpace, space.devices);
  visit(&Workload::global_batch_size, space.global_batch_size);
  visit(&Strategy::rank_order, space.rank_order);
  visit(&Strategy::tensor_parallel, space.tensor_parallel);
  visit(&Strategy::context_parallel, space.context_parallel);
  visit(&Strategy::expert_parallel, space.expert_parallel);
  visit(&Strategy::expert_tensor_parallel, space.expert_tensor_parallel);
  visit(&Strategy::context_parallel_comm, space.context_parallel_comm);
  visit(&Strategy::sequence_parallel, space.sequence_parallel);
  visit(&Strategy::recompute, space.recompute);
  visit(&Strategy::offload_activations, space.offload_activations);
  visit(&Workload::micro_batch_size, space.micro_batch_size);
  visit(&Strategy::pipeline_parallel, space.pipeline_parallel);
  visit(&Strategy::schedule, space.schedule);
  visit(&Strategy::virtual_pipeline, space.virtual_pipeline);
  visit(&Strategy::zero_stage, space.zero_stage);
  visit(&Strategy::shard_group, space.shard_group);
  visit(&Strategy::prefetch, space.prefetch);
  visit(&Strategy::gradient_bucket, space.gradient_bucket);
  visit(&Strategy::offload_optimizer, space.offload_optimizer);
}
// The field's name in problems and files.
inline std::string_view name_of_searched(std::string_view word) {
  return word;
}
template <class Part, class T>
std::string_view name_of_searched(T Part::*member) {
  return field_of(member).name;
}

// The same for a space of ways to serve.
template <class Space, class Visit>
void for_each_serving_field(Space& space, const Visit& visit) {
  visit(kDevicesOfSpace, space.devices);
  visit(&Workload::weights_dtype, space.weights_dtype);
  visit(&Workload::kv_dtype, space.kv_dtype);
  visit(&Strategy::tensor_parallel, space.tensor_parallel);
  visit(&Strategy::expert_parallel, space.expert_parallel);
  visit(&Strategy::pipeline_parallel, space.pipeline_parallel);
  visit(&Workload::batch_size, space.batch_size);
}

}  // namespace sim
