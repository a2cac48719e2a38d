// What an operation costs in time on a device, how sure that is, and what bounds it.
#pragma once
#include <string_view>

#include "sim/cost/calibration.h"
#include "sim/cost/work.h"
#include "sim/plan/plan.h"
#include "sim/report/report.h"

namespace sim {

struct Price {
  Seconds seconds, low, high;  // 90 % band
  Bound bound{};
  Provenance provenance{};
};

// These change the expected time and both ends of the band alike; the bound and the provenance stay.
constexpr Price operator+(Price a, Seconds more) {
  for (Seconds Price::*t : {&Price::seconds, &Price::low, &Price::high}) a.*t += more;
  return a;
}
constexpr Price operator+(Price a, const Price& b) {
  for (Seconds Price::*t : {&Price::seconds, &Price::low, &Price::high}) a.*t += b.*t;
  return a;
}
constexpr Price operator*(Price a, double n) {
  for (Seconds Price::*t : {&Price::seconds, &Price::low, &Price::high}) a.*t = a.*t * n;
  return a;
}

// Whose kernels run, where a GPU has tables of several software stacks; empty: not known.
struct KernelSoftware {
  std::string_view attention{}, products{}, collectives{};
  std::optional<DType> stored{};  // KernelSample::stored
  // Weights of fewer bits than the arithmetic are read at this share of the bandwidth that a product with
  // full-width weights reaches.
  double narrow_weights = 1;
};

// A price of t with a band from t / (1 + error) to t (1 + error).
Price with_error(Seconds t, double error, Bound bound, Provenance provenance = Provenance::datasheet);
// The bound that belongs to the longest of the three times.
Bound bound_of(Seconds launch, Seconds compute, Seconds memory);

// `group` is the operation's where it is a collective. `working_set`: memory that the plan touches before it
// comes back to the same operands (KernelSample::working_set), 0 where not known.
Price price(const Work& work, const Operation& op, const Variables& v, const Hardware& hardware,
            const Calibration* calibration, const Group* group = nullptr, Bytes working_set = {},
            const KernelSoftware& software = {});

}  // namespace sim
