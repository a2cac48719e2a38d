// Checkpoints of a training run: a folder that is a Hugging Face model folder too.
//
//   config.json, tokenizer.json        the model's shape; the tokenizer, where it came from a folder that has
//   model-STEP.safetensors             parameters, fp32, under Hugging Face's names
//   optimizer-STEP.safetensors         moments, and scales of frozen weights in fewer bits, fp32, under
//                                      the plan's names and "/layer"
//   model.safetensors.index.json       names the above and holds step, seed and data position
//
// The index is written last, by an atomic rename: until then the folder is the previous checkpoint, and
// whatever a killed run has left beside it is removed by the next save. So a kill at any time loses no
// checkpoint that was told as written (sim::CheckpointEvent).
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runtime/loss_scale.h"
#include "runtime/run.h"
#include "sim/units.h"

namespace runtime {

struct CheckpointState {
  std::int64_t step = 0;  // done
  std::uint64_t seed = 0;
  std::int64_t data_position = 0;  // tokens read
  LossScale loss_scale;            // fp16
};

// Makes the folder where it is missing: what a run asks before it starts, so that its work is not lost at its
// end. Throws DeviceError where it cannot be made, and InputError where it holds a model that is no
// checkpoint.
void require_checkpoint_folder(const std::filesystem::path& directory);

// What the index says of a checkpoint, beside where its weights lie. Throws InputError or PresetError, naming
// file and field.
struct CheckpointIndex {
  CheckpointState state;
  std::vector<std::string> optimizer_files;  // their names, in the same folder
};
CheckpointIndex read_checkpoint_index(const std::filesystem::path& directory);
inline constexpr const char* kCheckpointIndex = "model.safetensors.index.json";
// That file's text. `weights`: the file of each tensor of the model; `size`: of all of them.
std::string checkpoint_index_text(const CheckpointIndex& index,
                                  const std::map<std::string, std::string>& weights, sim::Bytes size);

// What a moment or a scale is called in its file.
std::string state_name(const Run& run, InstanceName whole);

// Fills parameters and optimizer states, of each rank its own parts. Throws InputError naming file and
// tensor.
CheckpointState load_checkpoint(const std::filesystem::path& directory, Run& run);

}  // namespace runtime
