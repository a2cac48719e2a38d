// The frozen weights of a plan as kernels take them: codes, and the buffers of scales beside them.
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "kernels/frozen_weights.h"
#include "sim/plan/plan.h"
#include "sim/scenario/workload.h"

namespace runtime {

static_assert(sim::kFrozenBlock == kernels::FrozenWeight::kBlock &&
              sim::kFrozenScaleBlock == kernels::FrozenWeight::kScaleBlock);

// Empty for as_dtype.
std::optional<kernels::FrozenFormat> frozen_format(sim::FrozenWeights stored);

// A weight of `count` values by the types of its codes and of its `scales` scales; without addresses.
kernels::FrozenWeight frozen_weight(sim::DType codes, std::int64_t count, sim::DType scale,
                                    std::int64_t scales);

// Whether the buffer holds a weight that the plan expands before each product.
bool is_frozen_weight(const sim::Plan& plan, sim::BufferId buffer);

// The buffers beside a parameter: scales and, where they have scales themselves, those.
std::vector<sim::BufferId> buffers_beside(const sim::Plan& plan, sim::BufferId parameter);

// A frozen weight's memory on the host. Requires is_frozen_weight(). Move-only: weight() points into parts().
class FrozenCopy {
 public:
  FrozenCopy(const sim::Plan& plan, sim::BufferId weight);
  FrozenCopy(FrozenCopy&&) = default;

  struct Part {
    sim::BufferId buffer;
    std::vector<std::byte> bytes;
  };
  std::vector<Part>& parts() { return parts_; }  // whose bytes stay where they are
  const kernels::FrozenWeight& weight() const { return weight_; }

 private:
  std::vector<Part> parts_;
  kernels::FrozenWeight weight_;
};

}  // namespace runtime
