#include "runtime/checkpoint.h"

#include <deque>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "runtime/error.h"
#include "runtime/formats/atomic_file.h"
#include "runtime/formats/safetensors.h"
#include "runtime/hugging_face_config.h"
#include "runtime/weights.h"
#include "sim/file_text.h"
#include "sim/json_object.h"

namespace runtime {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kIndex = "model.safetensors.index.json";
// What transformers asks of a file's metadata.
const std::map<std::string, std::string> kMetadata{{"format", "pt"}};

void write_file(const fs::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(content)));
  file.commit();
}

std::string optimizer_name(const Run& run, InstanceName name) {
  return run.whole_plan().buffers[static_cast<std::size_t>(name.buffer)].name + "/" +
         std::to_string(name.layer);
}

// Values of the whole model under their names in a file, on rank 0; of other ranks' lists nothing comes.
class TensorList {
 public:
  explicit TensorList(const Run& run) : run_(run) {}

  void add_parameter(InstanceName name) {
    const sim::Buffer& of = run_.whole_plan().buffers[static_cast<std::size_t>(name.buffer)];
    std::span<const float> rest = values_of(name);
    if (rest.empty()) return;
    const auto adapter = adapter_part(of.name, name.layer, of.shape.front().factor, of.shape.back().factor);
    const std::vector<WeightPart> parts =
        adapter ? std::vector{*adapter}
                : weight_parts(run_.plan().scenario.model, WeightNames::hugging_face, of.name, name.layer);
    for (const WeightPart& part : parts) {
      const std::span<const float> rows = rest.first(static_cast<std::size_t>(part.elements()));
      rest = rest.subspan(rows.size());
      tensors_.push_back(
          {part.tensor, part.file_shape(), part.lies_otherwise() ? keep(file_order(part, rows)) : rows});
    }
  }

  void add_optimizer_state(InstanceName name) {
    const std::span<const float> values = values_of(name);
    if (values.empty()) return;
    tensors_.push_back({optimizer_name(run_, name), {static_cast<std::int64_t>(values.size())}, values});
  }

  const std::vector<SafetensorsF32>& tensors() const { return tensors_; }

 private:
  std::span<const float> values_of(InstanceName name) { return keep(run_.collect(name)); }
  std::span<const float> keep(std::vector<float> values) { return copies_.emplace_back(std::move(values)); }

  const Run& run_;
  std::vector<SafetensorsF32> tensors_;
  std::deque<std::vector<float>> copies_;  // whose elements stay where they are
};

// Files of other steps: of the checkpoint before, or left behind by a run that was killed while it saved.
void remove_other_steps(const fs::path& directory, const std::set<std::string>& current) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool of_a_step = (name.starts_with("model-") || name.starts_with("optimizer-")) &&
                           (name.ends_with(".safetensors") || name.ends_with(".safetensors.tmp"));
    if (of_a_step && !current.contains(name)) fs::remove(entry.path(), ignored);
  }
}

void copy_if_present(const fs::path& from, const fs::path& to) {
  if (const auto content = sim::file_text(from)) write_file(to, *content);
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

void save_checkpoint(const fs::path& directory, const Run& run, const CheckpointState& state,
                     const fs::path& model_directory) {
  require_checkpoint_folder(directory);
  const std::string suffix = std::to_string(state.step) + ".safetensors";
  const std::string model_file = "model-" + suffix, optimizer_file = "optimizer-" + suffix;
  const bool writes = run.communicator().rank() == 0;
  json weight_map = json::object();
  std::int64_t total_size = 0;
  {
    TensorList parameters(run);
    for (const InstanceName& name : run.whole_instances_of(sim::BufferClass::parameter))
      parameters.add_parameter(name);
    for (const SafetensorsF32& tensor : parameters.tensors()) {
      weight_map[tensor.name] = model_file;
      total_size += static_cast<std::int64_t>(tensor.values.size_bytes());
    }
    if (writes) write_safetensors(directory / model_file, parameters.tensors(), kMetadata);
  }
  {
    TensorList moments(run);
    for (const InstanceName& name : run.whole_instances_of(sim::BufferClass::optimizer))
      moments.add_optimizer_state(name);
    if (!writes) return;
    write_safetensors(directory / optimizer_file, moments.tensors());
  }
  write_file(directory / "config.json", hugging_face_config(run.plan().scenario.model));
  if (!model_directory.empty())
    for (const char* file : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
      copy_if_present(model_directory / file, directory / file);

  const json index = {{"metadata",
                       {{"total_size", total_size},
                        {"optimizer", optimizer_file},
                        {"step", state.step},
                        {"seed", state.seed},
                        {"data_position", state.data_position},
                        {"loss_scale", state.loss_scale.scale},
                        {"loss_scale_steps", state.loss_scale.steps_since_change},
                        {"skipped_steps", state.loss_scale.skipped}}},
                      {"weight_map", weight_map}};
  write_file(directory / kIndex, index.dump(1) + "\n");
  remove_other_steps(directory, {model_file, optimizer_file});
}

CheckpointIndex read_checkpoint_index(const fs::path& directory) {
  const fs::path path = directory / kIndex;
  const std::optional<std::string> text = sim::file_text(path);
  if (!text) throw InputError(directory.string() + " has no checkpoint (" + kIndex + ") to resume from");
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
  index.optimizer_file = metadata.text("optimizer");
  // It lies beside the index: a path that leads elsewhere is refused, not followed.
  if (index.optimizer_file.empty() || fs::path(index.optimizer_file).filename() != index.optimizer_file)
    metadata.fail("optimizer", "must be the name of a file in the same folder");
  return index;
}

CheckpointState load_checkpoint(const fs::path& directory, Run& run) {
  const auto [state, optimizer_file] = read_checkpoint_index(directory);
  const ModelSource model = open_model(fs::absolute(directory).string());
  sim::Model shape = model.model;
  shape.name = run.plan().scenario.model.name;
  shape.source = run.plan().scenario.model.source;
  if (shape != run.plan().scenario.model)
    throw InputError(directory.string() + ": the checkpoint's config.json has another shape than model " +
                     shape.name);
  run.fill_parameters(model, state.seed);
  const Safetensors moments = Safetensors::open(directory / optimizer_file);
  std::vector<float> values;
  for (const InstanceName& name : run.whole_instances_of(sim::BufferClass::optimizer)) {
    values.resize(run.whole_elements_of(name));
    moments.read_as_f32(optimizer_name(run, name), values);
    run.write_part(name, values);
  }
  return state;
}

}  // namespace runtime
