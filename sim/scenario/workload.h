// The workload: what is asked of the model, training steps or generation.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/dtype.h"
#include "sim/enum_names.h"
#include "sim/scenario/field.h"

namespace sim {

enum class Task { train, generate };

enum class Optimizer {
  adamw,       // Loshchilov & Hutter 2019: two moments
  adamw_8bit,  // Dettmers et al. 2022: the moments in 8 bits, with a scale for every block
  adafactor,   // Shazeer & Stern 2018: mean squares of rows and of columns, no momentum
  muon,        // Jordan et al. 2024: orthogonalised momentum of matrices; AdamW for the rest
  sgd,         // with momentum
  lion,        // Chen et al. 2023: the sign of a momentum, one state
};

// How weights that do not learn are stored.
enum class FrozenWeights {
  as_dtype,
  int8,        // a scale a row (Dettmers et al. 2022, arXiv 2208.07339)
  nf4,         // 4 bits, a scale of 32 bits for 64 weights (Dettmers et al. 2023, arXiv 2305.14314)
  nf4_double,  // the scales in 8 bits, 256 of them with a scale of their own (there, section 3)
};
inline constexpr std::int64_t kFrozenBlock = 64, kFrozenScaleBlock = 256;

// The products of a layer whose weights can have types of their own. qkv: queries, keys and values; up: with
// the gate, where there is one. up and down are those of the MLP, of experts and of the shared expert, as
// llama.cpp's mixtures choose by what the names of all three have in common (ffn_down, ffn_down_exps,
// ffn_down_shexp; src/llama-quant.cpp).
enum class LayerProduct { qkv, output, up, down };
inline constexpr LayerProduct kLayerProducts[] = {LayerProduct::qkv, LayerProduct::output, LayerProduct::up,
                                                  LayerProduct::down};

struct Workload {
  Task task = Task::train;
  DType dtype =
      DType::bf16;  // of matrix products, and of what is stored unless the implementation says otherwise

  // training
  std::int64_t seq_len = 2048;
  std::int64_t micro_batch_size = 1;   // sequences a device works on at a time
  std::int64_t global_batch_size = 1;  // sequences a step; micro-batches = global / (micro * data_parallel)
  Optimizer optimizer = Optimizer::adamw;
  // Measures the gradient's norm after a step's first micro-batch, too. With the norm of the whole step it
  // gives the gradient noise scale (economics/noise_scale.h).
  bool measure_noise = false;
  // LoRA (plan/lora.h). 0: all weights learn.
  std::int64_t lora_rank = 0;
  double lora_alpha = 16;  // adapters' results are multiplied by lora_alpha / lora_rank
  std::vector<std::string> lora_targets = {"query", "value"};
  FrozenWeights frozen_weights = FrozenWeights::as_dtype;

  // generation
  std::int64_t batch_size = 1;  // sequences
  std::int64_t prompt_length = 128;
  std::int64_t max_new_tokens = 128;
  bool kv_cache = true;
  // How weights of the layers' products and the KV cache are stored; empty: in dtype. fp8 weights are
  // multiplied in fp8; a product expands weights in other types of 8 and fewer bits to dtype. Embedding and
  // head are stored in dtype unless embedding_dtype says otherwise, or head_dtype of a head with weights of its
  // own.
  std::optional<DType> weights_dtype, kv_dtype;
  std::optional<DType> embedding_dtype, head_dtype;
  std::optional<DType> expert_weights_dtype;  // type of experts' weights, where it is not weights_dtype
  // Tokens of a block of the KV cache. A sequence's blocks lie anywhere and a table records where (paged
  // attention, Kwon et al. 2023, arXiv 2309.06180). 0: a sequence's whole length lies in one piece.
  std::int64_t kv_block = 0;
  // Weights that share a scale of 16 bits; 0: a whole row. q2_k to q6_k have groups of their own.
  std::int64_t weights_group = 0;
  bool weights_zeros = true;  // beside it, in 16 bits, the code of zero or the least weight
  // Types of the weights of LayerProducts in place of weights_dtype and expert_weights_dtype, as in files that
  // mix types, and the layers in which they are so (layer_list.h; empty: all). Where neither is set, they mean
  // nothing. What is in int8 beside fewer bits has no zeros: has_zeros().
  std::optional<DType> qkv_dtype, output_dtype, up_dtype, down_dtype;
  std::string mixed_layers;

  // Mixture of experts. Expected tokens of the busiest device over the mean: 1 is balanced routing, the aim
  // of the losses and biases of training. Memory is sized for so many, unless the implementation has room for
  // any choice.
  double expert_imbalance = 1;
  // Rows that an expert has places for, over the mean. Rows beyond them are dropped; places without a row are
  // padding (Fedus et al. 2021, arXiv 2101.03961). 0: no row is dropped.
  double expert_capacity_factor = 0;

  bool operator==(const Workload&) const = default;
};

// clang-format off
template <>
inline constexpr auto kFields<Workload> = [] {
  using W = Workload;
  return std::tuple{
    field("task", &W::task, "task", "task", "what is asked of the model"),
    field("dtype", &W::dtype, "dtype", "dtype", "of matrix products").one_of(kComputeTypes),
    field("seq_len", &W::seq_len, "seq-len", "sequence",
          "tokens of a sequence; 8k is 8,192").between(1, kLongestSequence).in(FieldUnit::tokens).when(trains),
    field("micro_batch_size", &W::micro_batch_size, "micro-batch", "micro-batch",
          "sequences a device works on at a time; alone it is the global batch too").between(1, kMostSequences).when(trains),
    field("global_batch_size", &W::global_batch_size, "global-batch", "global batch",
          "sequences of a step").between(1, kMostSequences).when(trains),
    field("optimizer", &W::optimizer, "optimizer", "optimizer", "what updates the parameters").when(trains),
    field("measure_noise", &W::measure_noise, "measure-noise", "measure noise",
          "measure the gradient noise scale, by the gradient norms of a step's first micro-batch and of the step").when(accumulates_on_one_device).seldom_set(),
    field("lora_rank", &W::lora_rank, "lora-rank", "LoRA rank",
          "rank of the products that learn beside frozen weights (LoRA); 0: all weights learn").between(0, kLargestWidth).when(trains),
    field("lora_alpha", &W::lora_alpha, "lora-alpha", "LoRA alpha",
          "what adapters give is multiplied by alpha over rank").between(0, kLargestWidth).when(freezes_weights),
    field("lora_targets", &W::lora_targets, "lora-targets", "LoRA targets",
          "weights that have adapters, by commas").one_of(kLoraTargets).when(freezes_weights),
    field("frozen_weights", &W::frozen_weights, "frozen-weights", "frozen weights",
          "how weights of layers that do not learn are stored; nf4: in 4 bits, a scale for 64, which nf4_double stores in 8 bits").when(freezes_weights),
    field("batch_size", &W::batch_size, "batch-size", "batch",
          "sequences generated at a time").between(1, kMostSequences).when(generates),
    field("prompt_length", &W::prompt_length, "prompt-length", "prompt",
          "tokens of the prompt").between(1, kLongestSequence).in(FieldUnit::tokens).when(generates),
    field("max_new_tokens", &W::max_new_tokens, "max-new-tokens", "new tokens",
          "tokens to generate").between(1, kLongestSequence).in(FieldUnit::tokens).when(generates),
    field("kv_cache", &W::kv_cache, "kv-cache", "KV cache",
          "without it the whole sequence is computed again for every token").when(generates),
    field("weights_dtype", &W::weights_dtype, "weights-dtype", "weights",
          "how weights are stored; unset: as --dtype").one_of(kStoredTypes).when(generates),
    field("embedding_dtype", &W::embedding_dtype, "embedding-dtype", "embedding",
          "how the embedding of tokens and the head are stored; unset: as --dtype").one_of(kStoredTypes).when(generates).seldom_set(),
    field("head_dtype", &W::head_dtype, "head-dtype", "head",
          "how the head is stored where it is not the embedding; unset: as --embedding-dtype").one_of(kStoredTypes).when(generates_with_own_head).seldom_set(),
    field("kv_dtype", &W::kv_dtype, "kv-dtype", "cache type",
          "of the KV cache; unset: as --dtype").one_of(kCacheTypes).when(generates),
    field("expert_weights_dtype", &W::expert_weights_dtype, "expert-weights-dtype", "expert weights",
          "how experts' weights are stored; unset: as --weights-dtype").one_of(kStoredTypes).when(generates_with_experts).seldom_set(),
    field("kv_block", &W::kv_block, "kv-block", "KV block",
          "tokens of a block of the KV cache; 0: contiguous").between(0, kLongestSequence).in(FieldUnit::tokens).when(keeps_cache),
    field("weights_group", &W::weights_group, "weights-group", "weights group",
          "weights that share a scale; 0: a whole row").between(0, kLargestWidth).when(generates).seldom_set(),
    field("weights_zeros", &W::weights_zeros, "weights-zeros", "zeros of groups",
          "a zero beside each group's scale; without it codes lie around zero").when(generates).seldom_set(),
    field("qkv_dtype", &W::qkv_dtype, "qkv-dtype", "QKV weights",
          "how weights of queries, keys and values are stored; unset: as --weights-dtype").one_of(kStoredTypes).when(can_mix_types).seldom_set(),
    field("output_dtype", &W::output_dtype, "output-dtype", "output weights",
          "how weights of attention's output are stored; unset: as --weights-dtype").one_of(kStoredTypes).when(can_mix_types).seldom_set(),
    field("up_dtype", &W::up_dtype, "up-dtype", "up weights",
          "how weights of gate and up are stored, in the MLP, experts and the shared expert; unset: as --weights-dtype and --expert-weights-dtype").one_of(kStoredTypes).when(can_mix_types).seldom_set(),
    field("down_dtype", &W::down_dtype, "down-dtype", "down weights",
          "how weights of down are stored, in the MLP, experts and the shared expert; unset: as --weights-dtype and --expert-weights-dtype").one_of(kStoredTypes).when(can_mix_types).seldom_set(),
    field("mixed_layers", &W::mixed_layers, "mixed-layers", "",
          "layers in which --qkv-dtype, --output-dtype, --up-dtype and --down-dtype hold, as 0-3,7; unset: all").when(can_mix_types).seldom_set(),
    field("expert_imbalance", &W::expert_imbalance, "expert-imbalance", "imbalance",
          "tokens of the busiest device over the mean; 1: balanced").between(1, kMostExperts).when(has_experts).seldom_set(),
    field("expert_capacity_factor", &W::expert_capacity_factor, "expert-capacity-factor", "capacity",
          "rows an expert has places for over the mean, others are dropped; 0: none is").between(0, kMostExperts).when(has_experts).seldom_set()};
}();
// clang-format on

// Whether the layers' weights, or those of experts, have fewer than 8 bits where no product has its own type.
inline bool has_fewer_than_8_bits(const Workload& w) {
  const auto has_few = [](const std::optional<DType>& type) { return type && bits(*type) < 8; };
  return has_few(w.weights_dtype) || has_few(w.expert_weights_dtype);
}

// Whether weights that are stored in `stored` have a zero beside each group's scale.
inline bool has_zeros(const Workload& w, DType stored) {
  if (const auto blocks = stored_blocks(stored)) return blocks->minima;
  return w.weights_zeros && !(stored == DType::int8 && has_fewer_than_8_bits(w));
}

// Its field of a product.
inline std::optional<DType> Workload::* own_type(LayerProduct product) {
  switch (product) {
    case LayerProduct::qkv:
      return &Workload::qkv_dtype;
    case LayerProduct::output:
      return &Workload::output_dtype;
    case LayerProduct::up:
      return &Workload::up_dtype;
    case LayerProduct::down:
      break;
  }
  return &Workload::down_dtype;
}
// The type of a product's weights that is not `common`, which they would have otherwise. None where that is the
// same, or where `common` is unset: the weights are then stored in dtype.
inline std::optional<DType> type_beside(const Workload& w, LayerProduct product, std::optional<DType> common) {
  const std::optional<DType>& own = w.*own_type(product);
  return common && own != common ? own : std::nullopt;
}
inline std::optional<DType> stored_experts(const Workload& w) {
  return w.expert_weights_dtype ? w.expert_weights_dtype : w.weights_dtype;
}
inline bool mixes_types(const Workload& w) {
  const auto has_own = [&](LayerProduct p) {
    const bool of_experts = p == LayerProduct::up || p == LayerProduct::down;
    return type_beside(w, p, w.weights_dtype) || (of_experts && type_beside(w, p, stored_experts(w)));
  };
  return w.task == Task::generate && std::ranges::any_of(kLayerProducts, has_own);
}

inline bool trains_adapters(const Workload& w) {
  return w.task == Task::train && w.lora_rank > 0;
}
// How frozen weights of layers' products are stored; as_dtype also where all weights learn.
inline FrozenWeights stored_frozen(const Workload& w) {
  return trains_adapters(w) ? w.frozen_weights : FrozenWeights::as_dtype;
}

}  // namespace sim
