// GGUF files of the models in tests/parity/fixtures, as llama.cpp's converter makes them: headers and hashes
// of tensors, recorded by tests/parity/make_gguf_reference.py.
#include "runtime/gguf_model.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/model_source.h"
#include "runtime/weights.h"
#include "sim/plan/memory.h"
#include "sim/plan/plan.h"
#include "sim/scenario/preset.h"
#include "source_folder.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"
#include "tests/support/gguf_file.h"
#include "tests/support/temporary_folder.h"

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> recorded_models() {
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(fs::path(RIDGEPOINT_SOURCE_DIR) / "tests/parity/fixtures"))
    if (fs::exists(entry.path() / "gguf.json")) folders.push_back(entry.path());
  std::ranges::sort(folders);
  return folders;
}

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// 64-bit FNV-1a (Fowler, Noll and Vo).
std::string hash_of(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

// A parameter of a model, once for each layer that has it.
struct Parameter {
  std::string name;
  std::int32_t layer;
  std::int64_t elements;
};
std::vector<Parameter> parameters_of(const sim::Model& model) {
  const sim::Plan plan = sim::make_plan(tests::training(model, 16, 1, 1));
  std::vector<Parameter> all;
  for (const sim::Instance& i : sim::plan_memory(plan).instances) {
    const sim::Buffer& buffer = plan.buffers[static_cast<std::size_t>(i.buffer)];
    if (buffer.buffer_class == sim::BufferClass::parameter && buffer.view_of == sim::kNoBuffer)
      all.push_back({buffer.name, i.layer, buffer.elements({})});
  }
  return all;
}

std::vector<float> load(const runtime::ModelSource& source, const Parameter& p) {
  std::vector<float> values(static_cast<std::size_t>(p.elements));
  source.load(p.name, p.layer, values);
  return values;
}

// The data of each tensor in the file's order, from the values of the model folder.
std::map<std::string, std::vector<float>> tensors_of(const runtime::ModelSource& folder,
                                                     runtime::WeightNames names) {
  std::map<std::string, std::vector<float>> tensors;
  for (const Parameter& p : parameters_of(folder.model)) {
    const std::vector<float> values = load(folder, p);
    const auto parts = runtime::weight_parts(folder.model, names, p.name, p.layer);
    const auto places = runtime::row_places(parts);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::int64_t cols = std::max<std::int64_t>(parts[i].cols, 1);
      std::vector<float> rows;
      for (std::int64_t row = 0; row < parts[i].rows; ++row) {
        const auto from = values.begin() + places[i].of(row) * cols;
        rows.insert(rows.end(), from, from + cols);
      }
      tensors[parts[i].tensor] = runtime::file_order(parts[i], rows);
    }
  }
  return tensors;
}

}  // namespace

TEST_CASE("A GGUF file that llama.cpp's converter made holds the model folder's shape and weights") {
  const std::vector<fs::path> folders = recorded_models();
  REQUIRE(folders.size() >= 25);
  const TemporaryFolder scratch;
  std::set<std::string> architectures;
  for (const fs::path& folder : folders) {
    CAPTURE(folder.filename());
    std::ifstream in(folder / "gguf.json");
    const nlohmann::json recorded = nlohmann::json::parse(in);
    std::string file = bytes_of(folder / "gguf.header");
    const std::size_t data = file.size();
    file.resize(recorded.at("bytes").get<std::size_t>());
    const fs::path path = scratch.write("model.gguf", file);
    const runtime::ModelSource from_folder = runtime::open_model(folder.string());
    {
      const runtime::Gguf without_data = runtime::Gguf::open(path);
      architectures.emplace(without_data.string("general.architecture"));
      auto tensors = tensors_of(from_folder, runtime::gguf_weight_names(without_data));
      if (recorded.contains("rope_freqs"))  // follows from config.json
        tensors["rope_freqs.weight"] = recorded.at("rope_freqs").get<std::vector<float>>();
      const std::byte* first = without_data.tensors().front().bytes.data();
      for (const runtime::GgufTensor& t : without_data.tensors()) first = std::min(first, t.bytes.data());
      for (const runtime::GgufTensor& t : without_data.tensors()) {
        CAPTURE(t.name);
        REQUIRE(tensors.contains(t.name));
        const auto bytes = std::as_bytes(std::span(tensors.at(t.name)));
        CHECK(hash_of(bytes) == recorded.at("fnv1a").at(t.name));
        REQUIRE(bytes.size() == t.bytes.size());
        std::memcpy(file.data() + data + (t.bytes.data() - first), bytes.data(), bytes.size());
      }
      for (const auto& [name, values] : tensors) CHECK(without_data.find(name));
    }
    const runtime::ModelSource from_file = runtime::open_model(scratch.write("model.gguf", file).string());
    sim::Model model = from_file.model;
    model.name = from_folder.model.name;
    model.source = from_folder.model.source;
    // Falcon's files all say 2048, and BLOOM's how wide the model is where config.json has no length.
    const std::string family = folder.filename().string();
    if (family.starts_with("falcon") || family.starts_with("bloom"))
      model.max_position_embeddings = from_folder.model.max_position_embeddings;
    CHECK(sim::to_json(model) == sim::to_json(from_folder.model));
    for (const Parameter& p : parameters_of(from_folder.model)) {
      CAPTURE(p.name, p.layer);
      CHECK(load(from_file, p) == load(from_folder, p));
    }
  }
  CHECK(architectures == std::set<std::string>{"bloom", "deepseek2", "falcon", "gemma", "gemma2", "gemma3",
                                               "gpt-oss", "gpt2", "gptneox", "llama", "llama4", "mpt",
                                               "olmo2", "qwen2", "qwen2moe", "qwen3", "qwen3moe"});
}
