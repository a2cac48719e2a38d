#include "runtime/checkpoint_writer.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/error.h"
#include "runtime/formats/atomic_file.h"
#include "runtime/formats/safetensors.h"
#include "runtime/hugging_face_config.h"
#include "runtime/this_machine.h"
#include "runtime/weights.h"
#include "sim/file_text.h"

namespace runtime {
namespace {

namespace fs = std::filesystem;

// What transformers requires in a file's metadata.
const std::map<std::string, std::string> kMetadata{{"format", "pt"}};

void copy_if_present(const fs::path& from, const fs::path& to) {
  if (const auto content = sim::file_text(from)) write_file(to, *content);
}

// Removes files of other steps: of the previous checkpoint, or left by a run that was killed while it saved.
void remove_other_steps(const fs::path& directory, const std::set<std::string>& current) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool of_a_step = (name.starts_with("model-") || name.starts_with("optimizer-")) &&
                           (name.ends_with(".safetensors") || name.ends_with(".safetensors.tmp"));
    if (of_a_step && !current.contains(name)) fs::remove(entry.path(), ignored);
  }
}

// Rank 0's values of the whole model, under their names in a file; lists on other ranks stay empty.
class TensorList {
 public:
  explicit TensorList(const Run& run) : run_(run) {}

  void add(InstanceName name, sim::BufferClass of) {
    std::vector<float> values = run_.collect<float>(name);
    if (values.empty()) return;
    const std::span<const float> kept = keep(std::move(values));
    if (of == sim::BufferClass::parameter)
      add_parameter(name, kept);
    else
      tensors_.push_back({state_name(run_, name), {static_cast<std::int64_t>(kept.size())}, kept});
  }

  const std::vector<SafetensorsF32>& tensors() const { return tensors_; }

 private:
  void add_parameter(InstanceName name, std::span<const float> rest) {
    const sim::Buffer& of = run_.whole_plan().buffers[static_cast<std::size_t>(name.buffer)];
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

  std::span<const float> keep(std::vector<float> values) { return copies_.emplace_back(std::move(values)); }

  const Run& run_;
  std::vector<SafetensorsF32> tensors_;
  std::deque<std::vector<float>> copies_;  // whose elements stay where they are
};

sim::Bytes size_of(const Run& run, InstanceName name) {
  return {static_cast<std::int64_t>(run.whole_elements_of(name) * sizeof(float))};
}

// Instances that one file holds, one list a file, in the plan's order.
std::vector<std::vector<InstanceName>> in_shards(const Run& run, const std::vector<InstanceName>& names,
                                                 sim::Bytes most) {
  std::vector<std::vector<InstanceName>> shards;
  sim::Bytes size;
  for (const InstanceName& name : names) {
    if (shards.empty() || size + size_of(run, name) > most) {
      shards.emplace_back();
      size = {};
    }
    shards.back().push_back(name);
    size += size_of(run, name);
  }
  return shards;
}

// "model-6.safetensors", or of several "model-6-00002-of-00003.safetensors", as Hugging Face numbers them.
std::string shard_name(const std::string& what, std::int64_t step, std::size_t shard, std::size_t shards) {
  std::array<char, 64> number{};
  if (shards > 1) std::snprintf(number.data(), number.size(), "-%05zu-of-%05zu", shard + 1, shards);
  return what + "-" + std::to_string(step) + number.data() + ".safetensors";
}

}  // namespace

// Does work in the order in which it was given, with bounded memory. After the first failure it does nothing
// more.
class CheckpointWriter::Background {
 public:
  Background() : thread_([this](const std::stop_token& stop) { work(stop); }) {}

  void add(sim::Bytes holds, std::function<void()> work) {
    std::unique_lock lock(mutex_);
    const sim::Bytes most = {physical_memory().value / 4};
    changed_.wait(lock, [&] { return failure_ || waiting_.empty() || held_ + holds <= most; });
    if (failure_) std::rethrow_exception(failure_);
    waiting_.push_back({holds, std::move(work)});
    held_ += holds;
    changed_.notify_all();
  }

  // The work itself calls this.
  void note(std::int64_t step) {
    const std::lock_guard lock(mutex_);
    step_ = step;
  }

  std::optional<std::int64_t> finished(bool waits) {
    std::unique_lock lock(mutex_);
    if (waits) changed_.wait(lock, [this] { return failure_ || waiting_.empty(); });
    if (failure_) std::rethrow_exception(failure_);
    return std::exchange(step_, std::nullopt);
  }

 private:
  struct Work {
    sim::Bytes holds;
    std::function<void()> does;
  };

  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [this] { return !failure_ && !waiting_.empty(); })) {
      if (stop.stop_requested()) return;
      const Work& in_hand = waiting_.front();
      lock.unlock();
      std::exception_ptr failure;
      try {
        in_hand.does();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      held_ -= waiting_.front().holds;
      waiting_.pop_front();
      failure_ = failure;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Work> waiting_;  // the first one is in hand; others are added behind it
  sim::Bytes held_;
  std::optional<std::int64_t> step_;
  std::exception_ptr failure_;
  std::jthread thread_;  // ends before what it works on
};

CheckpointWriter::CheckpointWriter(fs::path directory, fs::path model_directory, sim::Bytes shard)
    : directory_(std::move(directory)), model_directory_(std::move(model_directory)), shard_(shard) {}

CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::save(const Run& run, const CheckpointState& state) {
  const bool writes = run.communicator().rank() == 0;
  if (writes) {
    require_checkpoint_folder(directory_);
    if (!background_) background_ = std::make_unique<Background>();
  }
  CheckpointIndex index{.state = state, .optimizer_files = {}};
  std::map<std::string, std::string> weights;  // the file of each tensor
  sim::Bytes total;
  std::set<std::string> files;
  for (const auto& [of, what] : {std::pair{sim::BufferClass::parameter, "model"},
                                 std::pair{sim::BufferClass::optimizer, "optimizer"}}) {
    std::vector<InstanceName> names = run.whole_instances_of(of);
    if (of == sim::BufferClass::optimizer)
      std::ranges::copy(run.whole_frozen_scales(), std::back_inserter(names));
    const std::vector<std::vector<InstanceName>> shards = in_shards(run, names, shard_);
    for (std::size_t s = 0; s < shards.size(); ++s) {
      const auto list = std::make_shared<TensorList>(run);
      sim::Bytes size;
      for (const InstanceName& name : shards[s]) {
        list->add(name, of);
        size += size_of(run, name);
      }
      if (!writes) continue;
      const std::string file = shard_name(what, state.step, s, shards.size());
      files.insert(file);
      if (of == sim::BufferClass::parameter) {
        for (const SafetensorsF32& tensor : list->tensors()) weights[tensor.name] = file;
        total += size;
      } else {
        index.optimizer_files.push_back(file);
      }
      background_->add(
          size, [path = directory_ / file, list] { write_safetensors(path, list->tensors(), kMetadata); });
    }
  }
  if (!writes) return;
  const std::string config = hugging_face_config(run.plan().scenario.model);
  const std::string text = checkpoint_index_text(index, weights, total);
  background_->add({}, [this, config, text, files, step = state.step] {
    write_file(directory_ / "config.json", config);
    if (!model_directory_.empty())
      for (const char* file : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
        copy_if_present(model_directory_ / file, directory_ / file);
    write_file(directory_ / kCheckpointIndex, text);
    remove_other_steps(directory_, files);
    background_->note(step);
  });
}

std::optional<std::int64_t> CheckpointWriter::finished() {
  return background_ ? background_->finished(false) : std::nullopt;
}

std::optional<std::int64_t> CheckpointWriter::finish() {
  return background_ ? background_->finished(true) : std::nullopt;
}

}  // namespace runtime
