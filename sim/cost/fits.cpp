#include "sim/cost/fits.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "sim/cost/near_samples.h"
#include "sim/cost/priced_plan.h"
#include "sim/cost/work.h"
#include "sim/format.h"

namespace sim {
namespace {

std::string key_of(const KernelSample& sample) {
  return std::string(name(sample.kind)) + ", " + std::string(name(sample.dtype));
}

// Orders samples as a price finds them. If one kernel was timed twice, the nearer working set comes first.
std::pair<double, double> distance(const KernelSample& a, const KernelSample& b) {
  const auto log = [](Bytes set) { return std::log(static_cast<double>(set.value) + 1); };
  return {squared_distance(a, b), std::abs(log(a.working_set) - log(b.working_set))};
}

// The published kernels whose tables may give a shape's time, as in gpu_price.cpp.
std::vector<MeasuredKernel> kernels_of(const KernelSample& shape) {
  using K = MeasuredKernel;
  switch (info(shape.kind).curve) {
    case Curve::product:
    case Curve::grouped_product:
    case Curve::newton_schulz:
      return {K::matmul};
    case Curve::cached_attention:
      return {K::attention_decode, K::attention_prefill};
    case Curve::flash_attention:
      if (is_backward(shape.kind)) return {K::attention_backward, K::attention_forward_backward};
      return {K::attention_forward, K::attention_prefill, K::attention_forward_backward};
    case Curve::streamed:
    case Curve::scattered:
    case Curve::standard_attention:
    case Curve::latent_cached_attention:
    case Curve::scan:
    case Curve::network:
      break;
  }
  return {};
}

std::vector<FittedRows> tables_of(const std::string& hardware, const KernelSample& shape,
                                  std::optional<CollectiveOperation> collective) {
  std::vector<std::string> named;
  if (collective)
    named.push_back(std::string(name(*collective)) + ",");
  else
    for (const MeasuredKernel kernel : kernels_of(shape))
      named.push_back(std::string(name(kernel)) + ", " + std::string(name(shape.dtype)));
  std::vector<FittedRows> tables;
  if (named.empty()) return tables;
  for (FittedRows& fit : published_fits(hardware))
    if (std::ranges::any_of(named, [&](const std::string& one) { return fit.what.starts_with(one); }))
      tables.push_back(std::move(fit));
  return tables;
}

const Action* action_of(const Plan& plan, Phase phase, std::string_view operation, const Operation*& found) {
  for (const Program& program : plan.programs)
    for (const Action& action : program.actions) {
      if (action.phase != phase) continue;
      for (const Operation& one : plan.block(action.block).operations)
        if (one.id == operation) {
          found = &one;
          return &action;
        }
    }
  return nullptr;
}

}  // namespace

std::vector<FittedRows> published_fits(const std::string& hardware) {
  std::vector<FittedRows> fits;
  const std::optional<GpuCalibration> gpu = load_gpu_calibration(hardware);
  if (!gpu) return fits;
  for (const KernelTable& table : gpu->kernels) fits.push_back(table.fit);
  for (const CollectiveCurve& curve : gpu->collectives) fits.push_back(curve.fit);
  return fits;
}

std::vector<HeldOut> held_out(const Calibration& calibration) {
  std::vector<HeldOut> all;
  for (const KernelSample& sample : calibration.samples)
    if (const auto predicted = calibrated_time(calibration, sample, &sample))
      all.push_back({&sample, *predicted});
  return all;
}

std::vector<FittedRows> fits_of(const Calibration& calibration) {
  std::map<std::pair<OpKind, DType>, FittedRows> by_kind;
  for (const KernelSample& sample : calibration.samples) {
    FittedRows& fit = by_kind[{sample.kind, sample.dtype}];
    ++fit.rows;
    if (fit.rows > 1) continue;
    fit.what = key_of(sample);
    fit.software = calibration.software;
    fit.source = "timed on " + calibration.device + ", " + calibration.date;
  }
  std::vector<FittedRows> fits;
  for (auto& [kind, fit] : by_kind) {
    if (const auto known = calibration.residual_of.find(kind); known != calibration.residual_of.end()) {
      fit.median = known->second.median;
      fit.p90 = known->second.p90;
    }
    fits.push_back(std::move(fit));
  }
  return fits;
}

std::string shape_text(const KernelSample& s) {
  const auto count = [](std::int64_t n) { return format_count(n); };
  std::string words;
  const auto add = [&](std::string_view what, std::int64_t n) {
    if (n > 0) words.append(words.empty() ? "" : ", ").append(what).append(" ").append(count(n));
  };
  const bool product = s.inner > 0;
  add(product ? "M" : "rows", s.rows);
  add(product ? "N" : "columns", s.cols);
  add("K", s.inner);
  add("groups", s.groups);
  add("sequences", s.batch);
  add("queries", s.query_length);
  add("keys", s.kv_length);
  add("heads", s.heads);
  add("key-value heads", s.kv_heads);
  add("head size", s.head_dim);
  if (words.empty()) words = format(s.bytes);
  if (s.stored) words += ", stored in " + std::string(name(*s.stored));
  return words;
}

std::optional<PriceTrace> trace_price(const Plan& plan, Phase phase, const std::string& operation,
                                      const Calibration* calibration) {
  const Operation* op = nullptr;
  const Action* const action = action_of(plan, phase, operation, op);
  if (!action) return std::nullopt;
  const Hardware& hardware = plan.scenario.hardware;
  const Work work = work_of(plan, *op, action->variables);
  const bool timed_here = calibration && !calibration->samples.empty();
  PriceTrace trace;
  trace.shape = kernel_shape(*op, action->variables, work, working_set_of(plan, calibration),
                             narrow_storage(plan, *op));
  const auto collective = info(op->kind).collective;
  if (!collective)
    trace.best = roofline(hardware, calibration ? calibration->launch : hardware.launch, trace.shape);
  if (timed_here && !collective) {
    if (const auto ratio = calibrated_ratio(*calibration, trace.shape)) trace.ratio = ratio->ratio;
    for (const KernelSample& sample : calibration->samples)
      if (sample.kind == trace.shape.kind && sample.dtype == trace.shape.dtype)
        trace.nearest.push_back(&sample);
    // Samples stored in the same type come first. Others count only where there are none of these.
    std::ranges::stable_sort(trace.nearest, {}, [&](const KernelSample* s) {
      return std::pair(s->stored != trace.shape.stored, distance(*s, trace.shape));
    });
    if (trace.nearest.size() > PriceTrace::kNearest) trace.nearest.resize(PriceTrace::kNearest);
  }
  if (calibration && calibration->gpu) trace.tables = tables_of(hardware.name, trace.shape, collective);
  return trace;
}

}  // namespace sim
