// Work in numbered pieces, done by this process alone or handed out to the processes that were started with
// it, to each as it asks for more. Which process does which piece decides nothing: results are by number.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "runtime/process_group.h"

namespace runtime {

struct PieceResult {
  std::string text;
  bool finished = true;  // else it was stopped on the way
};
using DoPiece = std::function<PieceResult(std::int64_t piece, const std::stop_token& stop)>;

struct SpreadOptions {
  ProcessGroup* group = nullptr;  // null: this process alone
  std::stop_token stop = {};
  // By the process of rank 0, from the thread that called: each piece as it is finished.
  std::function<void(std::int64_t piece, const std::string& result)> on_finished = {};
  std::function<void(const std::string& sentence)> warn = {};  // of a process that is no more
};

enum class SpreadEnd {
  done,
  interrupted,   // asked to stop
  process_lost,  // one ended by itself or was killed; its sentence was given to `warn`
};

struct SpreadResult {
  SpreadEnd end = SpreadEnd::done;
  std::vector<std::optional<std::string>> finished;  // by piece
  // Pieces that were stopped on the way, with their numbers.
  std::vector<std::pair<std::int64_t, std::string>> unfinished;
};

// `known` holds results of pieces that need not be done again. Every process of a group calls it with as many
// pieces; rank 0 gets the results, the others no more than the end. What `work` throws in any process is
// thrown by rank 0.
SpreadResult spread_work(std::vector<std::optional<std::string>> known, const DoPiece& work,
                         const SpreadOptions& options);

}  // namespace runtime
