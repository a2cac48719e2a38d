#include "sim/serving/simulation.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace sim {
namespace {

constexpr std::size_t kMostPoints = 4096;  // of the occupancy: more than a wide window has columns

// Records every step at first. When there are too many it keeps every second one.
class OccupancyRecorder {
 public:
  void record(const OccupancyPoint& point) {
    if (steps_++ % stride_ != 0) return;
    points_.push_back(point);
    if (points_.size() < kMostPoints) return;
    for (std::size_t i = 0; i < points_.size() / 2; ++i) points_[i] = points_[2 * i];
    points_.resize(points_.size() / 2);
    stride_ *= 2;
  }
  std::vector<OccupancyPoint> take() { return std::move(points_); }

 private:
  std::vector<OccupancyPoint> points_;
  std::int64_t steps_ = 0, stride_ = 1;
};

class Run {
 public:
  Run(const Traffic& traffic, const SchedulerLimits& limits, const IterationPrice& price)
      : traffic_(traffic), scheduler_(limits), price_(price), concurrency_(traffic.most_at_a_time) {}

  Simulation run() {
    result_.requests.resize(traffic_.arrivals.size());
    while (true) {
      submit_arrived();
      const Scheduler::Step& step = scheduler_.next();
      if (step.empty()) {
        if (next_ == traffic_.arrivals.size()) break;
        now_ = std::max(now_, traffic_.arrivals[next_].at);
        continue;
      }
      do_step(step);
    }
    result_.duration = now_;
    result_.mean_in_system = now_.value > 0 ? area_ / now_.value : 0;
    result_.preemptions = scheduler_.preemptions();
    result_.occupancy = occupancy_.take();
    return std::move(result_);
  }

 private:
  bool may_submit() const {
    return next_ < traffic_.arrivals.size() && (concurrency_ == 0 || in_system_ < concurrency_);
  }

  void submit_arrived() {
    for (; may_submit() && traffic_.arrivals[next_].at <= now_; ++next_, ++in_system_) {
      const Arrival& arrival = traffic_.arrivals[next_];
      scheduler_.submit(arrival.request);
      RequestTimes& times = result_.requests[next_];
      // A client that waits for an earlier answer sends its next request when that answer is there.
      times.arrived = concurrency_ > 0 ? now_ : arrival.at;
      times.output = arrival.request.output;
      area_ += (now_ - times.arrived).value;
    }
  }

  Iteration iteration_of(const Scheduler::Step& step) const {
    Iteration iteration;
    iteration.decode_sequences = static_cast<double>(step.decodes.size());
    if (!step.decodes.empty())
      iteration.decode_context = static_cast<double>(step.decode_context) / iteration.decode_sequences;
    for (const Scheduler::PromptPart& part : step.prompts) {
      const Iteration::Prompt prompt{1, static_cast<double>(part.tokens), static_cast<double>(part.context),
                                     part.ends};
      const bool same = !iteration.prompts.empty() && iteration.prompts.back().tokens == prompt.tokens &&
                        iteration.prompts.back().context == prompt.context &&
                        iteration.prompts.back().last == prompt.last;
      if (same)
        ++iteration.prompts.back().sequences;
      else
        iteration.prompts.push_back(prompt);
    }
    return iteration;
  }

  void do_step(const Scheduler::Step& step) {
    Iteration iteration = iteration_of(step);
    CostBreakdown cost = price_(iteration);
    std::int64_t times = scheduler_.steps_alike();
    if (times > 1) {
      if (may_submit()) {
        const double until = (traffic_.arrivals[next_].at - now_).value / cost.total().value;
        times = std::min(times, 1 + static_cast<std::int64_t>(std::max(0.0, until)));
      }
      // The cache grows by a token a step, so these steps share its mean length.
      iteration.decode_context += static_cast<double>(times - 1) / 2;
      if (times > 1) cost = price_(iteration) * static_cast<double>(times);
    }
    const Seconds took = cost.total();
    occupancy_.record({now_, scheduler_.used_blocks(), scheduler_.running(), scheduler_.waiting()});
    area_ += static_cast<double>(in_system_) * took.value;
    now_ += took;
    result_.busy += cost;
    result_.steps += times;
    result_.output_tokens += static_cast<std::int64_t>(step.decodes.size()) * times;
    for (const Scheduler::PromptPart& part : step.prompts) {
      if (!part.ends) continue;
      ++result_.output_tokens;
      RequestTimes& request = result_.requests[static_cast<std::size_t>(part.request)];
      if (request.first_token.value == 0) request.first_token = now_;
    }
    for (const RequestIndex ended : scheduler_.complete(times)) {
      result_.requests[static_cast<std::size_t>(ended)].finished = now_;
      --in_system_;
    }
  }

  const Traffic& traffic_;
  Scheduler scheduler_;
  const IterationPrice& price_;
  std::int64_t concurrency_ = 0, in_system_ = 0;
  std::size_t next_ = 0;
  Seconds now_;
  double area_ = 0;  // requests in the system, over time
  OccupancyRecorder occupancy_;
  Simulation result_;
};

}  // namespace

std::vector<Arrival> poisson_arrivals(double per_second, Seconds duration, const ServedRequest& request,
                                      std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Arrival> arrivals;
  for (Seconds t{};;) {
    // std::exponential_distribution differs between libraries; its inverse does not.
    constexpr double kScale = 0x1p-53;
    const double uniform = (static_cast<double>(random() >> 11) + 0.5) * kScale;
    t += Seconds{-std::log(uniform) / per_second};
    if (t >= duration) return arrivals;
    arrivals.push_back({t, request});
  }
}

Seconds RequestTimes::tpot() const {
  return output > 1 ? (finished - first_token) * (1 / static_cast<double>(output - 1)) : Seconds{};
}

double Simulation::output_per_second() const {
  return duration.value > 0 ? static_cast<double>(output_tokens) / duration.value : 0;
}

Simulation simulate(const Traffic& traffic, const SchedulerLimits& limits, const IterationPrice& price) {
  return Run(traffic, limits, price).run();
}

Seconds percentile(std::vector<Seconds> values, double share) {
  if (values.empty()) return {};
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

double goodput(const Simulation& simulation, Seconds most_ttft, Seconds most_tpot) {
  if (!(simulation.duration.value > 0)) return 0;
  const auto kept = std::ranges::count_if(simulation.requests, [&](const RequestTimes& r) {
    return r.ttft() <= most_ttft && r.tpot() <= most_tpot;
  });
  return static_cast<double>(kept) / simulation.duration.value;
}

}  // namespace sim
