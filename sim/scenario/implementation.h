// How the work is carried out: what `ridgepoint` itself runs, or what other people's software does (priced,
// never run here).
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "sim/dtype.h"
#include "sim/scenario/memory_profile.h"

namespace sim {

enum class AttentionKind { flash, standard };
std::string_view name(AttentionKind kind);
std::optional<AttentionKind> attention_kind_from_name(std::string_view text);

struct Implementation {
  std::string name;  // ridgepoint, megatron_2022, pytorch_eager
  AttentionKind attention = AttentionKind::flash;
  bool dropout = false;  // with masks of one byte an element kept for backward
  bool fused_residual =
      true;  // residual added in the projection's epilogue; otherwise an operation of its own
  DType gradient_dtype = DType::bf16;  // in mixed precision; fp32 training keeps fp32
  bool master_weights = true;          // fp32 copy in mixed precision
  bool runs_here = false;              // runtime/ can execute the plan
  MemoryProfile memory;
  std::string source;

  bool operator==(const Implementation&) const = default;
};

}  // namespace sim
