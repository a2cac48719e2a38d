// Writes checkpoints (checkpoint.h) while training goes on: the whole model is gathered in the memory of rank
// 0, whose own thread then writes it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "runtime/checkpoint.h"
#include "runtime/run.h"
#include "sim/units.h"

namespace runtime {

class CheckpointWriter {
 public:
  // `model_directory`: where tokenizer.json is copied from, may be empty. `shard`: the most that one file
  // holds of tensors, unless one alone has more.
  CheckpointWriter(std::filesystem::path directory, std::filesystem::path model_directory, sim::Bytes shard);
  // Gives up what has not been begun: the checkpoint before stays.
  ~CheckpointWriter();

  // Every rank of a run calls it. Returns when all that the checkpoint holds has been copied, so that the run
  // may change it, and waits for the disk only where more is unwritten than a quarter of the machine's
  // memory. Throws as finished() does.
  void save(const Run& run, const CheckpointState& state);

  // The step of the newest checkpoint that has become whole since the last call; does not wait. Throws
  // DeviceError where one could not be written (a full disk): the checkpoint before it is intact.
  std::optional<std::int64_t> finished();

  // The same, when all that was saved is written.
  std::optional<std::int64_t> finish();

 private:
  class Background;

  std::filesystem::path directory_, model_directory_;
  sim::Bytes shard_;
  std::unique_ptr<Background> background_;  // of rank 0, from its first save on
};

}  // namespace runtime
