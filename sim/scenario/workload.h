// What is asked of the model: training steps or generation.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/dtype.h"
#include "sim/enum_names.h"

namespace sim {

enum class Task { train, generate };

enum class Optimizer {
  adamw,       // Loshchilov & Hutter 2019: two moments
  adamw_8bit,  // Dettmers et al. 2022: the moments in 8 bits, with a scale for every block
  adafactor,   // Shazeer & Stern 2018: means of squares of rows and columns, no momentum
  muon,        // Jordan et al. 2024: momentum of matrices made orthogonal; AdamW for the rest
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

struct Workload {
  Task task = Task::train;
  DType dtype =
      DType::bf16;  // of matrix products, and of what is stored unless the implementation says otherwise

  // training
  std::int64_t seq_len = 2048;
  std::int64_t micro_batch_size = 1;   // sequences a device works on at a time
  std::int64_t global_batch_size = 1;  // sequences a step; micro-batches = global / (micro * data_parallel)
  Optimizer optimizer = Optimizer::adamw;
  // The gradient's norm after a step's first micro-batch, too: with the whole step's it gives the gradient
  // noise scale (economics/noise_scale.h).
  bool measure_noise = false;
  // LoRA (plan/lora.h). 0: all weights learn.
  std::int64_t lora_rank = 0;
  double lora_alpha = 16;  // adapters' results times alpha / rank
  std::vector<std::string> lora_targets = {"query", "value"};
  FrozenWeights frozen_weights = FrozenWeights::as_dtype;

  // generation
  std::int64_t batch_size = 1;  // sequences
  std::int64_t prompt_length = 128;
  std::int64_t max_new_tokens = 128;
  bool kv_cache = true;
  // How weights of the layers' products and the KV cache are stored; empty: as dtype says. fp8 weights are
  // multiplied in fp8, int8 and int4 are expanded to dtype in the product; embedding and head keep its type
  // unless embedding_dtype says otherwise.
  std::optional<DType> weights_dtype, kv_dtype;
  std::optional<DType> embedding_dtype;
  std::optional<DType> expert_weights_dtype;  // of mixtures of experts, where it is not weights_dtype
  // Tokens of a block of the KV cache: a sequence's blocks lie anywhere, a table says where (paged attention,
  // Kwon et al. 2023, arXiv 2309.06180). 0: a sequence's whole length in one piece.
  std::int64_t kv_block = 0;
  std::int64_t weights_group = 0;  // weights that share a scale and a zero of 16 bits each; 0: a whole row

  // Mixture of experts. Tokens of the busiest device over the mean, as expected: 1 is balanced routing, which
  // the losses and biases of training aim at. Memory is for so many, unless the implementation has room for
  // any choice.
  double expert_imbalance = 1;
  // Rows that an expert has places for, over the mean; what is more is dropped, what is less is padding
  // (Fedus et al. 2021, arXiv 2101.03961). 0: none is dropped.
  double expert_capacity_factor = 0;

  bool operator==(const Workload&) const = default;
};

inline bool trains_adapters(const Workload& w) {
  return w.task == Task::train && w.lora_rank > 0;
}

}  // namespace sim
