#include "runtime/sample_kernels.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <random>
#include <span>
#include <thread>

#include "runtime/other_load.h"

namespace runtime {
namespace {

using Clock = std::chrono::steady_clock;

// Products with more arithmetic a byte than this take the same time wherever their operands come from.
constexpr double kComputeBoundIntensity = 64;

bool streams(const sim::Work& work) {
  return work.flops / work.memory() < kComputeBoundIntensity;
}

// So many rotations, each half of the last cache, exceed all caches: no cache holds what they go through.
constexpr std::int64_t kBeyondCaches = 4;

// Long enough that ticks of 10 ms on every core show another program's load of a tenth of a core.
constexpr double kWindowSeconds = 0.3;

bool is_undisturbed(const TimedSample& timed) {
  return timed.load <= kDisturbance;
}

// The times of an operation in two samples: over what stays in the last cache and, where that is another
// sample, over what no cache holds.
using OverBoth = std::array<std::vector<TimedSample>, 2>;

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
        load_(calibration.cores_used_by_others * static_cast<double>(samples_.size())) {}

  void run() {
    std::vector<std::size_t> all(operations_.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    timed_.resize(all.size());
    std::vector<std::size_t> streaming;
    std::ranges::copy_if(all, std::back_inserter(streaming),
                         [&](std::size_t i) { return streams(operations_[i].work()); });
    to_do_ = static_cast<std::size_t>(sampling_.passes) *
             (all.size() + streaming.size() * static_cast<std::size_t>(sampling_.passes_of_streams));
    // Each pass is mixed anew: a slow second then hits operations of all kinds and sizes, and not just those
    // whose mean predictions take.
    std::mt19937_64 random(1);
    const auto mixed_pass = [&](std::vector<std::size_t>& turn) {
      std::ranges::shuffle(turn, random);
      pass(turn);
    };
    for (int done = 0; done < sampling_.passes; ++done) {
      mixed_pass(all);
      for (int more = 0; more < sampling_.passes_of_streams; ++more) mixed_pass(streaming);
    }
    std::vector<std::size_t> again;
    for (const std::size_t i : all)
      if (!timed_[i][0].empty() && std::ranges::none_of(timed_[i][0], is_undisturbed)) again.push_back(i);
    to_do_ += again.size();
    pass(again);
    for (const OverBoth& of_operation : timed_)
      for (const std::vector<TimedSample>& times : of_operation)
        if (!times.empty()) keep(typical(times));
  }

  double mean_load() const { return samples_.empty() ? 0 : load_ / static_cast<double>(samples_.size()); }

 private:
  void pass(const std::vector<std::size_t>& turn) {
    OtherLoad others;
    Pace before = sampling_.pace ? sampling_.pace->look() : Pace{};
    Clock::time_point window = Clock::now();
    std::size_t done = 0, window_began = 0;
    const std::size_t known_before = known_;
    for (const std::size_t i : turn) {
      if (stop_.stop_requested()) break;
      if (const TimedPiece* const known = sampling_.pieces ? sampling_.pieces->next() : nullptr) {
        take(i, *known);
        ++done, ++done_, ++known_, window_began = done;  // known ones come first
        continue;
      }
      if (done_ == known_) begin_ = Clock::now();
      time_one(i);
      ++done, ++done_;
      if (seconds_since(window) >= kWindowSeconds || done == turn.size()) {
        const double missed = sampling_.threads > 0 ? others.look(sampling_.threads).missed : 0;
        const Pace after = sampling_.pace ? sampling_.pace->look() : Pace{};
        for (; window_began < done; ++window_began) {
          settle(turn[window_began], missed, between(before, after));
          if (sampling_.pieces) sampling_.pieces->add(last_piece(turn[window_began]));
        }
        before = after;
        window = Clock::now();
      }
      if (!sink_) continue;
      const double rate = seconds_since(begin_) / static_cast<double>(done_ - known_);
      sink_(sim::ProgressEvent{sampling_.what,
                               static_cast<std::int64_t>(done_),
                               static_cast<std::int64_t>(to_do_),
                               {rate * static_cast<double>(to_do_ - done_)}});
    }
    for (; window_began < done; ++window_began) settle(turn[window_began], 0, before);  // stopped in a window
    const std::size_t known = known_ - known_before;
    share_pace(last_times(std::span(turn).first(known)));
    share_pace(last_times(std::span(turn).subspan(known, done - known)));
  }

  std::vector<TimedSample*> last_times(std::span<const std::size_t> operations) {
    std::vector<TimedSample*> last;
    for (const std::size_t i : operations)
      for (std::vector<TimedSample>& times : timed_[i])
        if (!times.empty()) last.push_back(&times.back());
    return last;
  }

  void time_one(std::size_t i) {
    const SingleOperation& single = operations_[i];
    const sim::Work work = single.work();
    const auto sample_of = [&](const Timing& timing) {
      sim::KernelSample sample =
          sim::kernel_shape(single.operation(), single.bound_variables(), work, timing.working_set,
                            sim::narrow_storage(single.plan(), single.operation()));
      sample.median = {timing.median};
      sample.spread = timing.spread;
      return sample;
    };
    // If one run alone goes through more than caches hold, there is no other working set to time.
    const bool both = streams(work) && Stopwatch::uncached_memory(single) <= sampling_.memory;
    const Clock::time_point begin = Clock::now();
    Timing cached = stopwatch_.time_cached(single);
    if (both) cached.working_set = sampling_.rotation;
    timed_[i][0].push_back({.sample = sample_of(cached), .pace = {}});
    if (!both) {
      std::this_thread::sleep_for((Clock::now() - begin) * sampling_.rest);
      return;
    }
    // Replays go through as many copies as are worth it. Samples of a kind are compared by what they went
    // through: all that no cache holds counts as equal, and what caches hold was timed above.
    Timing uncached = stopwatch_.time_uncached(single);
    if (uncached.working_set < std::min(sampling_.memory, sampling_.rotation * kBeyondCaches)) return;
    uncached.working_set = sampling_.memory;
    timed_[i][1].push_back({.sample = sample_of(uncached), .pace = {}});
  }

  void take(std::size_t i, const TimedPiece& known) {
    for (const auto& [place, timed] : known)
      if (place < timed_[i].size()) timed_[i][place].push_back(timed);
  }

  TimedPiece last_piece(std::size_t i) const {
    TimedPiece piece;
    for (std::size_t place = 0; place < timed_[i].size(); ++place)
      if (!timed_[i][place].empty()) piece.emplace_back(place, timed_[i][place].back());
    return piece;
  }

  // Records how the machine was when an operation was last timed.
  void settle(std::size_t i, double load, const Pace& pace) {
    for (std::vector<TimedSample>& times : timed_[i]) {
      if (times.empty()) continue;
      times.back().load = load;
      times.back().pace = pace;
    }
  }

  void keep(const TimedSample& timed) {
    samples_.push_back(timed.sample);
    load_ += timed.load;
    if (sampling_.paces) sampling_.paces->push_back(timed.pace);
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
  double load_;                                   // summed over samples_
  Clock::time_point begin_;                       // of the first that was not known
  std::size_t done_ = 0, known_ = 0, to_do_ = 0;  // operations timed, in all passes, and of them those known
  std::vector<OverBoth> timed_;                   // by operation
};

}  // namespace

void share_pace(std::span<TimedSample* const> of_pass) {
  if (of_pass.empty()) return;
  std::vector<Pace> paces;
  for (const TimedSample* timed : of_pass) paces.push_back(timed->pace);
  const Pace shared = median(paces);
  for (TimedSample* timed : of_pass) timed->pace = shared;
}

TimedSample typical(std::vector<TimedSample> times) {
  const auto time_of = [](const TimedSample& timed) { return timed.sample.median; };
  const auto disturbed = std::partition(times.begin(), times.end(), is_undisturbed);
  if (disturbed == times.begin()) return *std::ranges::min_element(times, {}, time_of);
  const auto middle = times.begin() + (disturbed - times.begin() - 1) / 2;
  std::ranges::nth_element(times.begin(), middle, disturbed, {}, time_of);
  return *middle;
}

void sample_kernels(const std::vector<SingleOperation>& operations, Stopwatch& stopwatch,
                    const Sampling& sampling, const EventSink& sink, const std::stop_token& stop,
                    sim::Calibration& calibration) {
  Sampler sampler(operations, stopwatch, sampling, sink, stop, calibration);
  sampler.run();
  calibration.cores_used_by_others = sampler.mean_load();
}

void raise_peaks(sim::Calibration& calibration) {
  for (const sim::KernelSample& sample : calibration.samples) {
    // Products with weights in fewer bits compute in fewer bits as well.
    if (!sim::is_product(sample.kind) || sample.stored) continue;
    sim::FlopsPerSecond& peak = calibration.hardware.peak[sample.dtype];
    peak = std::max(peak, sample.flops / sample.median);
  }
}

}  // namespace runtime
