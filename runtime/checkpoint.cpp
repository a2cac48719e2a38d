#include "runtime/checkpoint.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <system_error>

#include "runtime/error.h"
#include "runtime/formats/safetensors.h"
#include "sim/file_text.h"
#include "sim/json_object.h"

namespace runtime {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// They lie beside the index: a path that leads elsewhere is refused, not followed.
std::vector<std::string> files_in(sim::JsonObject& metadata, const char* key) {
  const sim::Json& value = metadata.at(key);
  std::vector<std::string> files = value.is_array() ? metadata.texts(key) : std::vector{metadata.text(key)};
  const auto leads_elsewhere = [](const std::string& file) {
    return file.empty() || fs::path(file).filename() != file;
  };
  if (files.empty() || std::any_of(files.begin(), files.end(), leads_elsewhere))
    metadata.fail(key, "must be the name of a file in the same folder, or a list of such");
  return files;
}

}  // namespace

void require_checkpoint_folder(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error)
    throw DeviceError("cannot make the checkpoint folder " + directory.string() + ": " + error.message());
  // transformers would take such a file for the model, whatever the index says.
  if (fs::exists(directory / "model.safetensors"))
    throw InputError(
        directory.string() +
        " holds model.safetensors, which is no checkpoint of a training run; name another folder");
}

std::string checkpoint_index_text(const CheckpointIndex& index,
                                  const std::map<std::string, std::string>& weights, sim::Bytes size) {
  const CheckpointState& state = index.state;
  const std::vector<std::string>& files = index.optimizer_files;
  const json text = {{"metadata",
                      {{"total_size", size.value},
                       {"optimizer", files.size() == 1 ? json(files.front()) : json(files)},
                       {"step", state.step},
                       {"seed", state.seed},
                       {"data_position", state.data_position},
                       {"loss_scale", state.loss_scale.scale},
                       {"loss_scale_steps", state.loss_scale.steps_since_change},
                       {"skipped_steps", state.loss_scale.skipped}}},
                     {"weight_map", weights}};
  return text.dump(1) + "\n";
}

std::string state_name(const Run& run, InstanceName whole) {
  return run.whole_plan().buffers[static_cast<std::size_t>(whole.buffer)].name + "/" +
         std::to_string(whole.layer);
}

CheckpointIndex read_checkpoint_index(const fs::path& directory) {
  const fs::path path = directory / kCheckpointIndex;
  const std::optional<std::string> text = sim::file_text(path);
  if (!text)
    throw InputError(directory.string() + " has no checkpoint (" + kCheckpointIndex + ") to resume from");
  const sim::Json root = sim::parse_json(*text, path.string());
  sim::JsonObject metadata = sim::JsonObject(root, path.string()).object("metadata");
  CheckpointIndex index;
  CheckpointState& state = index.state;
  const auto count = [&metadata](const char* key, std::int64_t otherwise) {
    const std::int64_t value = otherwise < 0 ? metadata.integer(key) : metadata.integer(key, otherwise);
    if (value < 0) metadata.fail(key, "must be 0 or more, but is " + std::to_string(value));
    return value;
  };
  state.step = count("step", -1);
  state.data_position = count("data_position", -1);
  const sim::Json& seed = metadata.at("seed");
  if (!seed.is_number_unsigned()) metadata.fail("seed", "must be a whole number from 0 to 2^64 - 1");
  state.seed = seed.get<std::uint64_t>();
  LossScale& loss = state.loss_scale;
  const double scale = metadata.number("loss_scale", loss.scale);
  if (!(scale >= std::numeric_limits<float>::min() && scale <= std::numeric_limits<float>::max()))
    metadata.fail("loss_scale", "must be above 0, and a float");
  loss.scale = static_cast<float>(scale);
  loss.steps_since_change = count("loss_scale_steps", loss.steps_since_change);
  loss.skipped = count("skipped_steps", loss.skipped);
  index.optimizer_files = files_in(metadata, "optimizer");
  return index;
}

CheckpointState load_checkpoint(const fs::path& directory, Run& run) {
  const auto [state, optimizer_files] = read_checkpoint_index(directory);
  const ModelSource model = open_model(fs::absolute(directory).string());
  sim::Model shape = model.model;
  shape.name = run.plan().scenario.model.name;
  shape.source = run.plan().scenario.model.source;
  if (shape != run.plan().scenario.model)
    throw InputError(directory.string() + ": the checkpoint's config.json has another shape than model " +
                     shape.name);
  std::vector<Safetensors> files;
  for (const std::string& file : optimizer_files) files.push_back(Safetensors::open(directory / file));
  std::vector<float> values;
  const auto load = [&](const std::vector<InstanceName>& states) {
    for (const InstanceName& whole : states) {
      const std::string name = state_name(run, whole);
      const auto has_it = [&](const Safetensors& file) { return file.find(name) != nullptr; };
      const auto file = std::find_if(files.begin(), files.end(), has_it);
      values.resize(run.whole_elements_of(whole));
      (file == files.end() ? files.back() : *file).read_as_f32(name, values);  // or says what is missing
      run.write_part(whole, values);
    }
  };
  // Scales come first: with those that they had, weights get the codes that they had. Optimizer states come
  // last, because fill_parameters() sets master copies.
  load(run.whole_frozen_scales());
  run.fill_parameters(model, state.seed, FrozenScales::as_they_are);
  load(run.whole_instances_of(sim::BufferClass::optimizer));
  return state;
}

}  // namespace runtime
