#include "runtime/sample_kernels.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "runtime/other_load.h"

namespace runtime {
namespace {

using Clock = std::chrono::steady_clock;

// Products with more arithmetic a byte than this take their time wherever the operands come from.
constexpr double kComputeBoundIntensity = 64;

// Long enough for ticks of 10 ms on every core to tell a load of a tenth of a core.
constexpr double kWindowSeconds = 0.3;

class Sampler {
 public:
  Sampler(const std::vector<SingleOperation>& operations, Stopwatch& stopwatch, const Sampling& sampling,
          const EventSink& sink, const std::stop_token& stop, sim::Calibration& calibration)
      : operations_(operations),
        stopwatch_(stopwatch),
        sampling_(sampling),
        sink_(sink),
        stop_(stop),
        samples_(calibration.samples),
        first_(samples_.size()),
        load_before_(calibration.cores_used_by_others * static_cast<double>(first_)) {}

  void run() {
    std::vector<std::size_t> all(operations_.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    places_.resize(all.size());
    pass(all);
    std::vector<std::size_t> again;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (!places_[i].empty() && load_[places_[i].front() - first_] > kDisturbance) again.push_back(i);
    pass(again);
  }

  double mean_load() const {
    double sum = load_before_;
    for (const double load : load_) sum += load;
    return samples_.empty() ? 0 : sum / static_cast<double>(samples_.size());
  }

 private:
  void pass(const std::vector<std::size_t>& turn) {
    OtherLoad others;
    Pace before = sampling_.pace ? sampling_.pace->look() : Pace{};
    Clock::time_point window = Clock::now();
    const Clock::time_point begin = window;
    std::size_t done = 0, window_began = 0;
    for (const std::size_t i : turn) {
      if (stop_.stop_requested()) break;
      time_one(i);
      ++done;
      if (seconds_since(window) >= kWindowSeconds || done == turn.size()) {
        const double missed = sampling_.threads > 0 ? others.look(sampling_.threads).missed : 0;
        const Pace after = sampling_.pace ? sampling_.pace->look() : Pace{};
        for (; window_began < done; ++window_began)
          settle(turn[window_began], missed, between(before, after));
        before = after;
        window = Clock::now();
      }
      if (!sink_) continue;
      const double rate = seconds_since(begin) / static_cast<double>(done);
      sink_(sim::ProgressEvent{sampling_.what,
                               static_cast<std::int64_t>(done),
                               static_cast<std::int64_t>(turn.size()),
                               {rate * static_cast<double>(turn.size() - done)}});
    }
    for (; window_began < done; ++window_began) settle(turn[window_began], 0, before);  // stopped in a window
  }

  // Into new_[i], until it is known how busy the machine was.
  void time_one(std::size_t i) {
    const SingleOperation& single = operations_[i];
    const sim::Work work = single.work();
    const auto sample_of = [&](const Timing& timing) {
      sim::KernelSample sample =
          sim::kernel_shape(single.operation(), single.bound_variables(), work, timing.working_set);
      sample.median = {timing.median};
      sample.spread = timing.spread;
      return sample;
    };
    // Where one run alone goes through more than caches hold, there is no other working set to time.
    const bool both = work.flops / work.memory() < kComputeBoundIntensity &&
                      Stopwatch::uncached_memory(single) <= sampling_.memory;
    std::vector<sim::KernelSample>& timed = new_.emplace_back();
    Timing cached = stopwatch_.time_cached(single);
    if (both) cached.working_set = sampling_.rotation;
    timed.push_back(sample_of(cached));
    if (both) timed.push_back(sample_of(stopwatch_.time_uncached(single)));
  }

  // What time_one() found of the oldest operation that is not settled yet; of an operation that had samples,
  // the shorter times count.
  void settle(std::size_t i, double load, const Pace& pace) {
    for (std::size_t which = 0; which < new_.front().size(); ++which) {
      const sim::KernelSample& sample = new_.front()[which];
      if (which == places_[i].size()) {
        places_[i].push_back(samples_.size());
        samples_.push_back(sample);
        load_.push_back(load);
        if (sampling_.paces) sampling_.paces->push_back(pace);
      } else if (const std::size_t place = places_[i][which]; sample.median < samples_[place].median) {
        samples_[place] = sample;
        load_[place - first_] = load;
        if (sampling_.paces) (*sampling_.paces)[place] = pace;
      }
    }
    new_.erase(new_.begin());
  }

  static double seconds_since(Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
  }

  const std::vector<SingleOperation>& operations_;
  Stopwatch& stopwatch_;
  const Sampling& sampling_;
  const EventSink& sink_;
  const std::stop_token& stop_;
  std::vector<sim::KernelSample>& samples_;
  const std::size_t first_;
  const double load_before_;
  std::vector<double> load_;                         // of each sample from first_ on
  std::vector<std::vector<std::size_t>> places_;     // of each operation, in samples_
  std::vector<std::vector<sim::KernelSample>> new_;  // timed in the window that is not over
};

}  // namespace

double sample_kernels(const std::vector<SingleOperation>& operations, Stopwatch& stopwatch,
                      const Sampling& sampling, const EventSink& sink, const std::stop_token& stop,
                      sim::Calibration& calibration) {
  const std::size_t first = calibration.samples.size();
  Sampler sampler(operations, stopwatch, sampling, sink, stop, calibration);
  sampler.run();
  calibration.cores_used_by_others = sampler.mean_load();
  double peak = 0;
  for (std::size_t i = first; i < calibration.samples.size(); ++i) {
    const sim::KernelSample& sample = calibration.samples[i];
    if (sim::is_product(sample.kind)) peak = std::max(peak, sample.flops.value / sample.median.value);
  }
  return peak;
}

}  // namespace runtime
