// Which part of a parameter a tensor-parallel rank holds: rows of what is divided by outputs, columns of what
// is divided by inputs (Shoeybi et al. 2019, arXiv 1909.08053, section 3). Shapes are those of
// sim/plan/README.md. Moments and master copies are divided as their parameter.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "sim/scenario/model.h"

namespace runtime {

struct TensorPart {
  std::int64_t rows = 0, columns = 0;  // of the whole
  bool by_columns = false;
  struct Run {
    std::int64_t begin = 0, count = 0;  // rows or columns of the whole, one behind the other in the part
  };
  std::vector<Run> runs;
  std::int64_t length = 0;  // rows or columns of the part; beyond the runs it is padding

  std::int64_t elements() const { return length * (by_columns ? rows : columns); }
  void take(std::span<const float> whole, std::span<float> part) const;  // padding becomes zero
  void put(std::span<const float> part, std::span<float> whole) const;
};

// Empty where every rank holds the whole. `model` is the whole model.
std::optional<TensorPart> part_of_parameter(const sim::Model& model, std::string_view parameter,
                                            std::int32_t ranks, std::int32_t rank);

}  // namespace runtime
