// How a file holds one kernel timed (sim/scenario/listed_fields.h). Included by .cpp files only.
#pragma once
#include "sim/cost/calibration.h"
#include "sim/scenario/listed_fields.h"

namespace sim {

inline constexpr const char* kKindNames = "the operation kinds of sim/plan/operation.h";

// Dimensions are 0 where a kind has none.
void fields(auto& v, Like<KernelSample> auto& s) {
  using P = KernelSample;
  v.needed_word("kind", s.kind, kKindNames);
  v.needed("dtype", s.dtype);
  v("stored", s.stored);
  v.needed("flops", s.flops.value);
  v.needed("bytes", s.bytes.value);
  v.needed("median_seconds", s.median.value);
  v("spread", s.spread);
  unless_zero<&P::rows, &P::cols, &P::inner, &P::groups, &P::batch, &P::query_length, &P::kv_length,
              &P::heads, &P::kv_heads, &P::head_dim>(v, s);
  v.unless_zero("working_set_bytes", s.working_set.value);
}

}  // namespace sim
