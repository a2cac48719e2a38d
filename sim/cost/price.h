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

// The expected time and both ends of the band alike; what bounds it stays.
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

// Whose kernels run, where tables of GPUs have several; empty: not known.
struct KernelSoftware {
  std::string_view attention{}, products{}, collectives{};
  std::optional<DType> stored{};  // KernelSample::stored
  // The share of the wide product's bandwidth at which weights are read that have fewer bits than the
  // arithmetic.
  double narrow_weights = 1;
};

// A price between t / (1 + error) and t (1 + error).
Price with_error(Seconds t, double error, Bound bound, Provenance provenance = Provenance::datasheet);
// The longest of the three.
Bound bound_of(Seconds launch, Seconds compute, Seconds memory);

// `group` is the operation's where it is a collective; `working_set` is what the plan touches before it comes
// back to the same operands (KernelSample), 0 where that is not known.
Price price(const Work& work, const Operation& op, const Variables& v, const Hardware& hardware,
            const Calibration* calibration, const Group* group = nullptr, Bytes working_set = {},
            const KernelSoftware& software = {});

}  // namespace sim
