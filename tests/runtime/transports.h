// Ranks of every way to pass messages, each in a thread of this process, and numbers to pass.
#pragma once
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/shared_memory_ranks.h"
#include "runtime/socket_ranks.h"
#include "runtime/tcp_ranks.h"

namespace tests {

// Ranks that talk by sockets, in threads of this process.
inline void run_socket_ranks(std::int32_t ranks, const std::function<void(runtime::Transport&)>& work) {
  static int job = 0;
  const std::string name = "test-" + std::to_string(getpid()) + "-" + std::to_string(job++);
  std::vector<std::thread> threads;
  for (std::int32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto transport = runtime::join_socket_ranks(rank, ranks, name, std::chrono::seconds(60));
      work(*transport);
    });
  for (std::thread& thread : threads) thread.join();
}

// The same by TCP.
inline void run_tcp_ranks(std::int32_t ranks, const std::function<void(runtime::Transport&)>& work) {
  std::promise<std::string> told;
  const std::shared_future<std::string> port = told.get_future().share();
  std::vector<std::thread> threads;
  for (std::int32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const runtime::Meeting meeting{{"127.0.0.1"}, rank == 0 ? "0" : port.get(), "test"};
      const auto transport = runtime::join_tcp_ranks(rank, ranks, meeting, std::chrono::seconds(60),
                                                     [&](const std::string& of) { told.set_value(of); });
      work(*transport);
    });
  for (std::thread& thread : threads) thread.join();
}

// In threads of this process, each of which opens the others' memory as another process would.
inline void run_ranks_with(std::size_t most_on_the_way, std::int32_t ranks,
                           const std::function<void(runtime::Transport&)>& work) {
  static int job = 0;
  const std::string name = "shared-" + std::to_string(getpid()) + "-" + std::to_string(job++);
  std::vector<std::thread> threads;
  for (std::int32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto transport = runtime::share_memory(
          runtime::join_socket_ranks(rank, ranks, name, std::chrono::seconds(60)), most_on_the_way);
      work(*transport);
    });
  for (std::thread& thread : threads) thread.join();
}

inline void run_shared_memory_ranks(std::int32_t ranks,
                                    const std::function<void(runtime::Transport&)>& work) {
  run_ranks_with(runtime::kMostOnTheWay, ranks, work);
}

// With the least memory that ranks get along with.
inline void run_cramped_ranks(std::int32_t ranks, const std::function<void(runtime::Transport&)>& work) {
  run_ranks_with(0, ranks, work);
}

inline std::vector<float> values_of(std::int32_t rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

inline runtime::MutableBytes bytes_of(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}
inline runtime::ConstBytes read_bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace tests
