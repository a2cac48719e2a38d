// Searches of strategies off the interface's thread: what was found so far is shown while they run.
#pragma once
#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "app/gui/jobs/latest_answer.h"
#include "app/gui/jobs/plan_limits.h"
#include "sim/planner/explain.h"
#include "sim/planner/search.h"

namespace app::gui {

// What a search may vary of a scenario, and what a strategy must keep to.
struct PlannerChoices {
  std::int64_t devices = 0;  // at most; 0: the scenario's
  bool fewer = false;        // halves of them, too
  bool tensor = true, pipeline = true, context = true, experts = true;
  bool sharding = true, recompute = true, micro_batch = true, offload = false;
  double memory_share = 0.95;  // of each device's
  double slowest_step_s = 0;   // 0: any
  PlanLimits limits;
  bool operator==(const PlannerChoices&) const = default;
};

struct PlannerQuestion {
  sim::Scenario scenario;                               // of training
  std::shared_ptr<const sim::Calibration> calibration;  // may be null
  PlannerChoices choices;
};

sim::SearchSpace space_of(const PlannerQuestion& question);
sim::Constraints constraints_of(const PlannerChoices& choices);

struct PlannerView {
  PlannerQuestion question;
  sim::SearchSpace space;
  sim::Tariff tariff;
  sim::SearchResult result;  // so far
  std::int64_t done = 0, total = 0;
  bool running = false, stopped = false;
  std::string failure;  // a sentence
};

// Two candidates, and what each spends its step on.
struct PlannerComparison {
  std::array<std::int64_t, 2> picks{};
  std::optional<sim::Explanation> explanation;
  std::string failure;
};

class PlannerJob {
 public:
  // `wake` is called from workers when there is something new to draw.
  explicit PlannerJob(std::function<void()> wake);
  ~PlannerJob();
  PlannerJob(const PlannerJob&) = delete;
  PlannerJob& operator=(const PlannerJob&) = delete;

  // Instead of the search that runs, if one does.
  void start(PlannerQuestion question);
  // What was found until then stays.
  void cancel();
  std::shared_ptr<const PlannerView> view() const;  // null before the first search

  // Of candidates of the view's space; asked again, nothing happens.
  void compare(const std::array<std::int64_t, 2>& picks);
  std::shared_ptr<const PlannerComparison> comparison() const { return comparisons_.latest(); }

  // Until nothing runs: for pictures and tests, never for the window.
  void wait() const;

 private:
  struct ComparisonQuestion {
    std::array<std::int64_t, 2> picks{};
    std::shared_ptr<const PlannerView> view;
  };
  void work(const std::stop_token& stop);
  void search(const PlannerQuestion& question, const std::stop_token& stop);
  void publish(PlannerView view);

  std::function<void()> wake_;
  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  std::optional<PlannerQuestion> waiting_;
  std::stop_source running_;
  bool busy_ = false;
  std::shared_ptr<const PlannerView> view_;
  std::optional<ComparisonQuestion> compared_;
  LatestAnswer<ComparisonQuestion, PlannerComparison> comparisons_;
  std::jthread worker_;
};

}  // namespace app::gui
