// A study: work that takes longer than a frame, done off the interface's thread. Whoever wants its result
// asks with a request; the newest request supersedes the others, and the old result stays until the new one
// is there. Nobody ever waits.
#pragma once
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "app/gui/jobs/worker.h"

namespace app::gui {

// How far a study is with what it was asked last.
struct StudyProgress {
  bool running = false;           // or about to
  bool cancelled = false;         // the result is what was known then
  std::string failure;            // why the request that ended last has no result: a sentence; empty: it has
  std::int64_t done = 0, of = 0;  // parts of the work; 0 of 0: it does not say
  std::string part;               // that is worked on: "collectives.csv"
};

// What the desktop does with every study.
class AnyStudy {
 public:
  virtual ~AnyStudy() = default;
  // Takes over what is new: once a frame, so that a frame draws one state.
  virtual void poll() = 0;
  // What was found until then stays.
  virtual void cancel() = 0;
  // Waits until nothing runs: for pictures and tests, never for the window.
  virtual void wait() const = 0;
};

template <class Request, class Result>
class Study final : public AnyStudy {
 public:
  // What work is given beside its request.
  struct Course {
    std::stop_token token;
    std::function<void(Result so_far)> show;  // drawn while the rest is on its way
    std::function<void(std::int64_t done, std::int64_t of, std::string part)> report;
    // Asked by long work between its parts: whether the result is no longer wanted.
    bool stopped() const { return token.stop_requested(); }
  };
  // Runs beside the frames (jobs/worker.h), one request at a time. What it throws is the study's failure.
  using Work = std::function<Result(const Request&, const Course&)>;

  // `wake` is called from other threads when there is something new to draw.
  Study(Work work, std::function<void()> wake) : work_(std::move(work)), wake_(std::move(wake)) {}
  ~Study() override { cancel(); }
  Study(const Study&) = delete;
  Study& operator=(const Study&) = delete;

  // In place of what was asked before.
  void ask(Request request) {
    {
      const std::lock_guard lock(mutex_);
      asked_ = waiting_ = std::make_shared<const Request>(std::move(request));
      running_.request_stop();
      known_.progress.running = shown_.progress.running = true;
    }
    worker_.wake();
  }
  // Asks unless the last request was the same: visible panels call this in every frame.
  void follow(Request request) {
    if (!asked_ || !(*asked_ == request)) ask(std::move(request));
  }
  void cancel() override {
    const std::lock_guard lock(mutex_);
    waiting_ = nullptr;
    running_.request_stop();
    known_.progress.running = busy_;
  }
  void wait() const override { worker_.wait(); }

  void poll() override {
    const std::lock_guard lock(mutex_);
    shown_ = known_;
  }
  // State as of the last poll(), except that a newer request already shows as running. The result is null
  // before the first one, and may answer an older request than the newest.
  const Result* result() const { return shown_.result.get(); }
  const Request& request() const { return *shown_.request; }  // that the result answers
  const StudyProgress& progress() const { return shown_.progress; }

 private:
  static constexpr std::chrono::milliseconds kBetweenReports{50};
  struct State {
    std::shared_ptr<const Result> result;
    std::shared_ptr<const Request> request;
    StudyProgress progress;
  };

  Course course_of(const std::shared_ptr<const Request>& request) {
    const auto show = [this, request](Result so_far) {
      {
        const std::lock_guard lock(mutex_);
        known_.result = std::make_shared<const Result>(std::move(so_far));
        known_.request = request;
      }
      wake_();
    };
    const auto report = [this](std::int64_t done, std::int64_t of, std::string part) {
      {
        const std::lock_guard lock(mutex_);
        known_.progress.done = done;
        known_.progress.of = of;
        known_.progress.part = std::move(part);
      }
      const auto now = std::chrono::steady_clock::now();
      if (now - last_report_ < kBetweenReports) return;
      last_report_ = now;
      wake_();
    };
    return {running_.get_token(), show, report};
  }
  void work_on_newest() {
    std::unique_lock lock(mutex_);
    const std::shared_ptr<const Request> request = std::exchange(waiting_, nullptr);
    if (!request) return;  // no longer wanted
    running_ = std::stop_source();
    const Course course = course_of(request);
    busy_ = true;
    known_.progress = {.running = true, .failure = std::move(known_.progress.failure), .part = {}};
    lock.unlock();
    std::shared_ptr<const Result> result;
    std::string failure;
    try {
      result = std::make_shared<const Result>(work_(*request, course));
    } catch (const std::exception& problem) {
      failure = problem.what();
    }
    lock.lock();
    busy_ = false;
    known_.progress.failure = std::move(failure);
    known_.progress.running = waiting_ != nullptr;
    known_.progress.cancelled = course.stopped() && !waiting_;
    // The result of a request that a newer one replaced is still better than an older result.
    if (result) {
      known_.result = std::move(result);
      known_.request = request;
    }
    lock.unlock();
    // Before those who wait go on: they may count on the news.
    wake_();
  }

  Work work_;
  std::function<void()> wake_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Request> asked_;    // newest; the asking thread's
  std::shared_ptr<const Request> waiting_;  // null: none
  std::stop_source running_;
  bool busy_ = false;
  State known_;                                        // newest
  State shown_;                                        // of the frame
  std::chrono::steady_clock::time_point last_report_;  // the worker's
  Worker worker_{[this] { work_on_newest(); }};        // last: it uses all of the above
};

// The desktop's studies: panels add theirs, and the desktop treats all of them alike.
class Studies {
 public:
  explicit Studies(std::function<void()> wake) : wake_(std::move(wake)) {}

  template <class Request, class Result>
  Study<Request, Result>& add(typename Study<Request, Result>::Work work) {
    auto study = std::make_unique<Study<Request, Result>>(std::move(work), wake_);
    Study<Request, Result>& added = *study;
    all_.push_back(std::move(study));
    return added;
  }
  void poll() {
    for (const auto& study : all_) study->poll();
  }
  void wait() const {
    for (const auto& study : all_) study->wait();
  }

 private:
  std::function<void()> wake_;
  std::vector<std::unique_ptr<AnyStudy>> all_;
};

}  // namespace app::gui
