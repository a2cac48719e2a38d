#include "runtime/thread_ranks.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/error.h"
#include "runtime/messages.h"

namespace runtime {
namespace {

// Messages that have been sent and not yet received, of all ranks.
class Mail {
 public:
  using Message = std::vector<std::byte>;

  void put(std::int32_t from, std::int32_t to, MessageTag tag, Message message) {
    {
      const std::lock_guard lock(mutex_);
      throw_if_lost();
      boxes_[{from, to, tag}].push_back(std::move(message));
    }
    arrived_.notify_all();
  }

  Message take(std::int32_t from, std::int32_t to, MessageTag tag) {
    std::unique_lock lock(mutex_);
    std::deque<Message>& box = boxes_[{from, to, tag}];
    arrived_.wait(lock, [&] { return lost_ || !box.empty() || ended_.contains(from); });
    throw_if_lost();
    if (box.empty()) throw RankLost(from, kEndedBefore);
    Message message = std::move(box.front());
    box.pop_front();
    return message;
  }

  void check() {
    const std::lock_guard lock(mutex_);
    throw_if_lost();
  }

  void end(std::int32_t rank) {
    {
      const std::lock_guard lock(mutex_);
      ended_.insert(rank);
    }
    arrived_.notify_all();
  }
  bool has_ended(std::int32_t rank) {
    const std::lock_guard lock(mutex_);
    return ended_.contains(rank);
  }

  void lose(std::int32_t rank, const std::string& reason) {
    {
      const std::lock_guard lock(mutex_);
      if (!lost_) lost_.emplace(rank, reason);
    }
    arrived_.notify_all();
  }

 private:
  void throw_if_lost() const {
    if (lost_) throw RankLost(lost_->first, lost_->second);
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::tuple<std::int32_t, std::int32_t, MessageTag>, std::deque<Message>> boxes_;
  std::set<std::int32_t> ended_;
  std::optional<std::pair<std::int32_t, std::string>> lost_;
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(Mail& mail, std::int32_t rank, std::int32_t size) : mail_(mail), rank_(rank), size_(size) {}
  ~ThreadTransport() override { mail_.end(rank_); }

  std::int32_t rank() const override { return rank_; }
  std::int32_t size() const override { return size_; }

  void send(std::int32_t to, MessageTag tag, std::span<const ConstBytes> parts) override {
    Mail::Message message;
    for (const ConstBytes part : parts) message.insert(message.end(), part.begin(), part.end());
    mail_.put(rank_, to, tag, std::move(message));
  }

  void receive(std::int32_t from, MessageTag tag, std::span<const MutableBytes> parts) override {
    store(rank_, parts, from, mail_.take(from, rank_, tag));
  }

  void check() override { mail_.check(); }
  bool has_ended(std::int32_t rank) const override { return mail_.has_ended(rank); }
  void give_up(const std::string& reason) noexcept override { mail_.lose(rank_, reason); }

 private:
  Mail& mail_;
  std::int32_t rank_, size_;
};

}  // namespace

void run_thread_ranks(std::int32_t ranks, const std::function<void(Transport&)>& work) {
  Mail mail;
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  const auto run = [&](std::int32_t rank) {
    ThreadTransport transport(mail, rank, ranks);
    const auto fail = [&](const char* reason) {
      {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      transport.give_up(reason);
    };
    try {
      work(transport);
    } catch (const std::exception& error) {
      fail(error.what());
    } catch (...) {
      fail("an unknown exception");
    }
  };
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    try {
      threads.emplace_back(run, rank);
    } catch (
        const std::exception& error) {  // no thread or no memory left: those that run must not wait for it
      {
        const std::lock_guard lock(mutex);
        first = std::make_exception_ptr(DeviceError("rank " + std::to_string(rank) + " of " +
                                                    std::to_string(ranks) +
                                                    " cannot be started: " + error.what()));
      }
      mail.lose(rank, error.what());
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace runtime
