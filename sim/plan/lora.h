// LoRA: beside frozen products learn products of low rank, y = x W^T + (alpha / rank) x A^T B^T (Hu et al.
// 2021, arXiv 2106.09685); QLoRA: the frozen weights are stored in 4 bits, and expanded for each product
// (Dettmers et al. 2023, arXiv 2305.14314). Adapters are written into the lists of operations of a plain
// layer, whose frozen products lose their weights' gradients.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sim/plan/decoder.h"
#include "sim/plan/legality.h"

namespace sim {

std::vector<Problem> lora_problems(const Scenario& scenario);

// `held`: the model, or what a rank has of it.
std::vector<AdapterSite> adapter_sites(const Model& held, const Workload& workload);

// The beginning of the names of an adapter's buffers and operations: "layer.attention.qkv.query_adapter".
std::string adapter_name(const Model& model, const AdapterSite& site);

// The buffers of what x A^T gives, which is kept for the backward pass; in the order of
// DecoderParameters::adapters.
std::vector<BufferId> add_adapter_results(PlanBuilder& builder, const std::string& block,
                                          const AddBuffer& add);

// A layer's operations with those of the adapters; as they are where there are none.
std::vector<Operation> with_adapters(PlanBuilder& builder, const std::string& block,
                                     const DecoderParameters& p, const LayerResults& r,
                                     std::vector<Operation> forward);
// `gradient` is the residual stream's. Nothing below the lowest adapter learns, so the lowest layer does not
// compute this gradient.
std::vector<Operation> with_adapters_backward(PlanBuilder& builder, const std::string& block,
                                              const DecoderParameters& p, const LayerResults& r,
                                              LayerKind kind, BufferId gradient,
                                              std::vector<Operation> backward);

}  // namespace sim
