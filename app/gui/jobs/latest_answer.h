// Answers off the interface's thread: a question supersedes those before it, and the window draws what is
// newest without ever waiting.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace app::gui {

template <class Question, class Answer>
class LatestAnswer {
 public:
  // Asked by long work between its parts: whether the answer is no longer wanted.
  using Stale = std::function<bool()>;
  // Runs on the worker, one question at a time, and never throws.
  using Work = std::function<Answer(const Question&, const Stale&)>;

  // `wake` is called from the worker when there is something new to draw.
  LatestAnswer(Work work, std::function<void()> wake)
      : work_(std::move(work)),
        wake_(std::move(wake)),
        worker_([this](const std::stop_token& stop) { answer_until(stop); }) {}
  ~LatestAnswer() {
    worker_.request_stop();
    changed_.notify_all();
  }
  LatestAnswer(const LatestAnswer&) = delete;
  LatestAnswer& operator=(const LatestAnswer&) = delete;

  void ask(Question question) {
    {
      const std::lock_guard lock(mutex_);
      question_ = std::move(question);
      ++asked_;
    }
    changed_.notify_all();
  }
  // Null before the first one is ready; perhaps of the question before the newest.
  std::shared_ptr<const Answer> latest() const {
    const std::lock_guard lock(mutex_);
    return latest_;
  }
  // Until the newest question is answered: for pictures and tests, never for the window.
  void wait() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return answered_ == asked_; });
  }

 private:
  void answer_until(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [this] { return answered_ != asked_; })) {
      const std::uint64_t generation = asked_;
      const Question question = *question_;
      lock.unlock();
      const Stale stale = [&] {
        const std::lock_guard inner(mutex_);
        return asked_ != generation || stop.stop_requested();
      };
      auto answer = std::make_shared<const Answer>(work_(question, stale));
      lock.lock();
      // An older answer is still better than a yet older picture: it is shown until the newer one is ready.
      latest_ = std::move(answer);
      lock.unlock();
      // Before those who wait go on: they may count on the news.
      wake_();
      lock.lock();
      answered_ = generation;
      changed_.notify_all();
    }
  }

  Work work_;
  std::function<void()> wake_;
  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  std::uint64_t asked_ = 0, answered_ = 0;  // generations
  std::optional<Question> question_;
  std::shared_ptr<const Answer> latest_;
  std::jthread worker_;
};

}  // namespace app::gui
