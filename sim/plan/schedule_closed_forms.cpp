#include "sim/plan/schedule_closed_forms.h"

namespace sim {

std::optional<Seconds> closed_form_bubble(std::string_view schedule, std::int32_t stages, std::int32_t chunks,
                                          std::int32_t micro_batches, const PassTimes& stage) {
  const Seconds f = stage.forward, b = stage.backward_input, w = stage.backward_weight;
  const bool all_equal = f == b && b == w;
  const double others = stages - 1;
  if (schedule == "gpipe" || schedule == "1f1b" || schedule == "interleaved")
    return (f + b + w) * (others / chunks);
  if (micro_batches < stages) return std::nullopt;
  if (schedule == "breadth-first") return (f + b + w) * (others / chunks);
  if (schedule == "zb-h1") return (f + b - w) * others;
  if (schedule == "zb-h2" && f + b - w * 2 >= Seconds{} && micro_batches >= 2 * stages - 1)
    return (f + b - w * 2) * others;
  if (schedule == "zb-v" && all_equal && micro_batches >= 2 * stages - 1) return Seconds{};
  if (schedule == "dualpipe" && all_equal) return (f + b * 2 - w) * (stages / 2.0 - 1);
  if (schedule == "dualpipev" && all_equal) return (f + b * 2 - w) * (others / 2);
  return std::nullopt;
}

}  // namespace sim
