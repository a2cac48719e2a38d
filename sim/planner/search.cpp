#include "sim/planner/search.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "sim/plan/legality.h"
#include "sim/planner/candidate_walk.h"
#include "sim/planner/collector.h"
#include "sim/planner/search_parts.h"

namespace sim {
namespace {

using Clock = std::chrono::steady_clock;

// What the threads of a search share.
class SharedSearch {
 public:
  SharedSearch(const SearchSpace& space, const Constraints& constraints, const Tariff& tariff,
               const Calibration* calibration, const SearchOptions& options)
      : space_(space),
        constraints_(constraints),
        tariff_(tariff),
        calibration_(calibration),
        options_(options),
        begin_(std::clamp<std::int64_t>(options.begin, 0, size(space))),
        end_(std::clamp<std::int64_t>(options.end.value_or(size(space)), begin_, size(space))),
        next_layout_(begin_ / candidates_of_layout(space)),
        last_layout_(end_ > begin_ ? (end_ - 1) / candidates_of_layout(space) : -1),
        draw_below_(most_drawn(space, options.most_points)),
        began_(Clock::now()),
        schedules_(options.schedules ? options.schedules : std::make_shared<Schedules>()) {}

  SearchResult run() {
    std::vector<std::thread> threads;
    const int wanted = std::max(1, options_.threads);
    working_ = wanted;
    try {
      while (static_cast<int>(threads.size()) < wanted) threads.emplace_back([this] { work(); });
    } catch (const std::system_error&) {  // the system has no more threads: the existing ones do all of it
      const std::lock_guard lock(mutex_);
      working_ -= wanted - std::max<int>(1, static_cast<int>(threads.size()));
    }
    if (threads.empty()) work();  // in a page of a browser, which has none
    report_until_done();
    for (std::thread& t : threads) t.join();
    if (failure_) std::rethrow_exception(failure_);
    found_.begin = begin_;
    found_.end = end_;
    if (found_.smallest) complete(*found_.smallest);
    found_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
    return std::move(found_);
  }

 private:
  // Time was not asked for where memory refused a candidate.
  void complete(Candidate& c) const {
    if (c.tokens_per_second > 0) return;
    const Scenario s = candidate(space_, c.index);
    Collector collector(space_, {}, tariff_, options_, 0);
    c = collector.candidate(c.index, s.strategy.devices(), tokens_of_step(s.workload),
                            estimate(s, calibration_));
  }

  void work() {
    try {
      CandidateWalk walk(space_, calibration_, begin_, end_, schedules_);
      Collector collector(space_, constraints_, tariff_, options_, draw_below_);
      while (!options_.stop.stop_requested()) {
        const std::int64_t layout = next_layout_++;
        if (layout > last_layout_) break;
        walk.run(layout, options_.stop, collector);
        const std::lock_guard lock(mutex_);
        merge(found_, collector.take(), options_);
        collector.learn(found_);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      next_layout_ = last_layout_ + 1;
    }
    const std::lock_guard lock(mutex_);
    --working_;
    changed_.notify_all();
  }

  void report_until_done() {
    const auto every = std::chrono::duration<double>(options_.progress_every.value);
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, every, [this] { return working_ == 0; })) {
      if (!options_.on_progress) continue;
      SearchResult so_far = found_;
      lock.unlock();
      so_far.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
      options_.on_progress(so_far, so_far.looked_at, end_ - begin_);
      lock.lock();
    }
  }

  const SearchSpace& space_;
  const Constraints& constraints_;
  const Tariff& tariff_;
  const Calibration* calibration_;
  const SearchOptions& options_;
  std::int64_t begin_, end_;
  std::atomic<std::int64_t> next_layout_;  // threads take one after the other
  std::int64_t last_layout_;
  std::uint64_t draw_below_;
  Clock::time_point began_;
  std::shared_ptr<Schedules> schedules_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int working_ = 0;
  SearchResult found_;
  std::exception_ptr failure_;
};

}  // namespace

std::vector<Problem> problems(const Constraints& c) {
  std::vector<Problem> found = problems_of_limits(c);
  require_positive("slowest_step", !c.slowest_step || c.slowest_step->value > 0, found);
  return found;
}

SearchResult search(const SearchSpace& space, const Constraints& constraints, const Tariff& tariff,
                    const Calibration* calibration, const SearchOptions& options) {
  throw_first(problems(space));
  throw_first(problems(constraints));
  return SharedSearch(space, constraints, tariff, calibration, options).run();
}

std::int64_t candidates_of_layout(const SearchSpace& space) {
  return SpaceShape(space).of_layout();
}

void merge(SearchResult& into, const SearchResult& other, const SearchOptions& options) {
  if (into.begin == into.end) {
    into.begin = other.begin;
    into.end = other.end;
  } else if (other.begin != other.end) {
    into.begin = std::min(into.begin, other.begin);
    into.end = std::max(into.end, other.end);
  }
  add_found(into, other);
  into.seconds += other.seconds;
  for (const Objective o : kAll<Objective>) cut_best(into.best[o], o, options.most_kept);
  cut_front(into.front);
  join_points(into.points, other.points, options.most_points);
  const auto keep = [](std::optional<Candidate>& best, const std::optional<Candidate>& c,
                       Objective objective) {
    if (!c) return;
    if (!best ||
        std::make_pair(cost(*c, objective), c->index) < std::make_pair(cost(*best, objective), best->index))
      best = c;
  };
  keep(into.smallest, other.smallest, Objective::memory);
  keep(into.fastest, other.fastest, Objective::time);
}

}  // namespace sim
