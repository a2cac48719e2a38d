// The index of weights in several files, and of a checkpoint: it names files, which must lie beside it.
// Read by: runtime/formats/safetensors.cpp runtime/checkpoint.cpp
#include "runtime/checkpoint.h"
#include "runtime/formats/safetensors.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr const char* kIndex = "model.safetensors.index.json";

}  // namespace

std::vector<std::string> fuzz::seeds() {
  return {
      R"({"metadata":{"total_size":16},"weight_map":{"a":"model-1.safetensors","b":"model-1.safetensors"}})",
      R"({"metadata":{"total_size":16,"optimizer":"optimizer-1.safetensors","step":3,"seed":18446744073709551615,
"data_position":768,"loss_scale":65536.0,"loss_scale_steps":3,"skipped_steps":0},
"weight_map":{"a":"model-1.safetensors","b":"model-1.safetensors"}})",
      R"({"weight_map":{"elsewhere":"below/model-2.safetensors"}})"};  // leads into another folder
}

void fuzz::read(std::string_view input) {
  static const std::vector<float> values = {1, 2, 3, 4};
  static const bool shard_is_there = [] {
    const runtime::SafetensorsF32 tensors[] = {{"a", {2}, std::span(values).first(2)},
                                               {"b", {2}, std::span(values).last(2)}};
    runtime::write_safetensors(folder() / "model-1.safetensors", tensors);
    std::filesystem::create_directories(folder() / "below");
    const runtime::SafetensorsF32 elsewhere[] = {{"elsewhere", {2}, std::span(values).first(2)}};
    runtime::write_safetensors(folder() / "below" / "model-2.safetensors", elsewhere);
    return true;
  }();
  (void)shard_is_there;
  const std::filesystem::path index = fuzz::file(kIndex, input);
  try {
    const runtime::CheckpointIndex checkpoint = runtime::read_checkpoint_index(folder());
    require(checkpoint.state.step >= 0 && checkpoint.state.data_position >= 0,
            "a run has done no negative work");
    require(checkpoint.state.loss_scale.scale > 0, "a loss scale is above zero");
    for (const std::string& file : checkpoint.optimizer_files)
      require(file.find('/') == std::string::npos, "an index leads to no other folder");
  } catch (const std::runtime_error&) {  // may still be an index of weights
  }
  const auto file = runtime::Safetensors::open(index);
  for (const runtime::SafetensorsTensor& tensor : file.tensors())
    require(tensor.name == "a" || tensor.name == "b", "an index leads to no other file");
}
