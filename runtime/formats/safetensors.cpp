#include "runtime/formats/safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "runtime/error.h"
#include "runtime/formats/atomic_file.h"
#include "runtime/formats/excerpt.h"
#include "runtime/formats/float_formats.h"
#include "sim/foreign_text.h"

namespace runtime {
namespace {

using nlohmann::json;

// The reference implementation's own limit (MAX_HEADER_SIZE in safetensors' tensor.rs).
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kLengthBytes = 8;

struct Dtype {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array kDtypes = {
    Dtype{"F64", 8}, Dtype{"F32", 4}, Dtype{"F16", 2},  Dtype{"BF16", 2},    Dtype{"I64", 8},
    Dtype{"I32", 4}, Dtype{"I16", 2}, Dtype{"I8", 1},   Dtype{"U64", 8},     Dtype{"U32", 4},
    Dtype{"U16", 2}, Dtype{"U8", 1},  Dtype{"BOOL", 1}, Dtype{"F8_E4M3", 1}, Dtype{"F8_E5M2", 1},
};

std::optional<std::int64_t> bytes_of_dtype(std::string_view name) {
  const auto found = std::ranges::find(kDtypes, name, &Dtype::name);
  if (found == kDtypes.end()) return std::nullopt;
  return found->bytes;
}

// Parses an object whose top-level keys must differ; the parser itself keeps the last of two silently.
json parse_object(const std::string& where, std::string_view text) {
  std::set<std::string> keys;
  const auto refuse_repeats = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1 && !keys.insert(parsed.get<std::string>()).second) {
      throw InputError(where + ": '" + excerpt(parsed.get<std::string>()) + "' is defined twice");
    }
    return true;
  };
  if (const auto byte = sim::nested_too_deep(text))
    throw InputError(where + ": is nested too deeply (at byte " + std::to_string(*byte) + ")");
  try {
    json object = json::parse(text.begin(), text.end(), refuse_repeats);
    if (!object.is_object()) throw InputError(where + ": must be a JSON object");
    return object;
  } catch (const json::parse_error& error) {
    throw InputError(where + ": is not valid JSON (at byte " + std::to_string(error.byte) + ")");
  } catch (const json::out_of_range&) {
    throw InputError(where + ": is not valid JSON: the number at byte " +
                     std::to_string(sim::number_beyond_double(text)) +
                     " is beyond what a double holds, 1.8e308");
  }
}

SafetensorsTensor parse_tensor(const std::string& where, const std::string& name, const json& entry,
                               std::span<const std::byte> data) {
  const std::string tensor = where + ": tensor '" + excerpt(name) + "'";
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets")) {
    throw InputError(tensor + " must have dtype, shape and data_offsets");
  }
  const json& dtype = entry["dtype"];
  const auto element_bytes =
      dtype.is_string() ? bytes_of_dtype(dtype.get_ref<const std::string&>()) : std::nullopt;
  if (!element_bytes) {
    throw InputError(tensor + " has dtype " + excerpt(dtype.dump()) +
                     "; known are F64, F32, F16, BF16, F8_*, I*, U*, BOOL");
  }
  const json& shape = entry["shape"];
  const json& offsets = entry["data_offsets"];
  const auto all_counts = [](const json& values) {
    return values.is_array() && std::ranges::all_of(values, [](const json& value) {
             return value.is_number_unsigned() && std::in_range<std::int64_t>(value.get<std::uint64_t>());
           });
  };
  if (!all_counts(shape)) throw InputError(tensor + ": shape must be a list of non-negative integers");
  if (!all_counts(offsets) || offsets.size() != 2) {
    throw InputError(tensor + ": data_offsets must be two non-negative integers");
  }
  const auto begin = offsets[0].get<std::uint64_t>();
  const auto end = offsets[1].get<std::uint64_t>();
  if (begin > end || end > data.size()) {
    throw InputError(tensor + ": data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) +
                     "] must lie within the file's " + std::to_string(data.size()) + " bytes of data");
  }

  SafetensorsTensor result{name, dtype.get<std::string>(), {}, data.subspan(begin, end - begin)};
  std::int64_t bytes = *element_bytes;
  for (const json& value : shape) {
    result.shape.push_back(value.get<std::int64_t>());
    if (__builtin_mul_overflow(bytes, result.shape.back(), &bytes)) {
      throw InputError(tensor + ": shape " + excerpt(shape.dump()) +
                       " has more bytes than 64 bits can count");
    }
  }
  if (static_cast<std::uint64_t>(bytes) != result.bytes.size()) {
    throw InputError(tensor + ": shape " + excerpt(shape.dump()) + " of " + result.dtype + " needs " +
                     std::to_string(bytes) + " bytes, data_offsets give " +
                     std::to_string(result.bytes.size()));
  }
  return result;
}

// The format forbids holes: sorted by place, each tensor begins where the one before ended.
void require_contiguous(const std::string& where, std::vector<SafetensorsTensor>& tensors,
                        std::span<const std::byte> data) {
  std::ranges::sort(tensors, [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
    return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
  });
  const std::byte* next = data.data();
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.bytes.data() != next) {
      throw InputError(where + ": tensor '" + tensor.name +
                       "' must begin where the tensor before it ends, it " +
                       (tensor.bytes.data() < next ? "overlaps it" : "leaves a hole"));
    }
    next = tensor.bytes.data() + tensor.bytes.size();
  }
  if (next != data.data() + data.size()) {
    throw InputError(where + ": " + std::to_string(data.data() + data.size() - next) +
                     " bytes after the last tensor belong to none");
  }
}

}  // namespace

std::int64_t SafetensorsTensor::element_count() const {
  std::int64_t count = 1;
  for (const std::int64_t dimension : shape) count *= dimension;
  return count;
}

Safetensors Safetensors::open(const std::filesystem::path& path) {
  constexpr std::string_view kIndexName = "model.safetensors.index.json";
  std::filesystem::path file = path;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    file = path / "model.safetensors";
    if (!std::filesystem::exists(file, ignored)) file = path / kIndexName;
    if (!std::filesystem::exists(file, ignored)) {
      throw InputError(path.string() + ": holds neither model.safetensors nor " + std::string(kIndexName));
    }
  }

  Safetensors result;
  result.path_ = file;
  if (file.extension() != ".json") {
    result.add_file(file);
    result.sort_by_name();
    return result;
  }

  const MappedFile index = MappedFile::open(file);
  const json root = parse_object(file.string(), index.text());
  if (!root.contains("weight_map") || !root["weight_map"].is_object()) {
    throw InputError(file.string() + ": must have an object 'weight_map' of tensor name to file name");
  }
  std::set<std::string> shards;
  for (const auto& [name, shard] : root["weight_map"].items()) {
    // A shard lies beside its index: a path that leads elsewhere is refused, not followed.
    if (!shard.is_string() ||
        std::filesystem::path(shard.get<std::string>()).filename() != shard.get<std::string>()) {
      throw InputError(file.string() + ": weight_map['" + excerpt(name) +
                       "'] must be the name of a file in the same folder");
    }
    std::error_code unknown;
    if (!std::filesystem::is_regular_file(file.parent_path() / shard.get<std::string>(), unknown))
      throw InputError(file.string() + ": weight_map['" + excerpt(name) + "'] names '" +
                       excerpt(shard.get<std::string>()) + "', which is no file in the same folder");
    shards.insert(shard.get<std::string>());
  }
  for (const std::string& shard : shards) result.add_file(file.parent_path() / shard);
  result.sort_by_name();
  for (const auto& item : root["weight_map"].items()) {
    if (result.find(item.key()) == nullptr) {
      throw InputError(file.string() + ": weight_map names '" + excerpt(item.key()) +
                       "', which no shard holds");
    }
  }
  return result;
}

void Safetensors::add_file(const std::filesystem::path& path) {
  MappedFile file = MappedFile::open(path);
  const std::string where = path.string();
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() < kLengthBytes) {
    throw InputError(where + ": has " + std::to_string(bytes.size()) +
                     " bytes, a safetensors file has at least 8");
  }
  const auto header_bytes = load_unaligned<std::uint64_t>(bytes.data());
  if (header_bytes > std::min<std::uint64_t>(bytes.size() - kLengthBytes, kMaxHeaderBytes)) {
    throw InputError(where + ": the header's length is given as " + std::to_string(header_bytes) +
                     " bytes, of " + std::to_string(bytes.size() - kLengthBytes) + " that follow (at most " +
                     std::to_string(kMaxHeaderBytes) +
                     " are accepted); is it cut short, or not safetensors?");
  }
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + header_bytes);
  const json header = parse_object(where + ": header", file.text().substr(kLengthBytes, header_bytes));

  std::vector<SafetensorsTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") {
      tensors.push_back(parse_tensor(where, name, entry, data));
      continue;
    }
    if (!entry.is_object()) throw InputError(where + ": __metadata__ must be an object of strings");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string())
        throw InputError(where + ": __metadata__['" + excerpt(key) + "'] must be a string");
      metadata_[key] = value.get<std::string>();
    }
  }
  require_contiguous(where, tensors, data);
  std::ranges::move(tensors, std::back_inserter(tensors_));
  files_.push_back(std::move(file));
}

void Safetensors::sort_by_name() {
  std::ranges::sort(tensors_, {}, &SafetensorsTensor::name);
  const auto twice = std::ranges::adjacent_find(tensors_, {}, &SafetensorsTensor::name);
  if (twice != tensors_.end()) {
    throw InputError(path_.string() + ": tensor '" + excerpt(twice->name) + "' is in two shards");
  }
}

const SafetensorsTensor* Safetensors::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors_, name, {}, &SafetensorsTensor::name);
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

const SafetensorsTensor& Safetensors::at(std::string_view name) const {
  if (const SafetensorsTensor* tensor = find(name)) return *tensor;
  throw InputError(path_.string() + ": has no tensor '" + excerpt(name) + "'");
}

void Safetensors::read_as_f32(std::string_view name, std::span<float> out) const {
  const SafetensorsTensor& tensor = at(name);
  const std::string where = path_.string() + ": tensor '" + excerpt(tensor.name) + "'";
  if (static_cast<std::uint64_t>(tensor.element_count()) != out.size()) {
    throw InputError(where + " has " + std::to_string(tensor.element_count()) + " elements, expected " +
                     std::to_string(out.size()));
  }
  if (out.empty()) return;
  const std::byte* from = tensor.bytes.data();
  if (tensor.dtype == "F32") {
    std::memcpy(out.data(), from, tensor.bytes.size());
  } else if (tensor.dtype == "F16") {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = f16_to_f32(load_unaligned<std::uint16_t>(from + 2 * i));
  } else if (tensor.dtype == "BF16") {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = bf16_to_f32(load_unaligned<std::uint16_t>(from + 2 * i));
  } else {
    throw InputError(where + " has dtype " + tensor.dtype + "; weights must be F32, F16 or BF16");
  }
  give_back(tensor.bytes);
}

void write_safetensors(const std::filesystem::path& path, std::span<const SafetensorsF32> tensors,
                       const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const SafetensorsF32& tensor : tensors) {
    std::uint64_t elements = 1;
    for (const std::int64_t dimension : tensor.shape) elements *= static_cast<std::uint64_t>(dimension);
    if (elements != tensor.values.size())
      throw std::invalid_argument(tensor.name + ": shape and values disagree");
    if (header.contains(tensor.name)) throw std::invalid_argument(tensor.name + ": written twice");
    const std::uint64_t end = offset + tensor.values.size_bytes();
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  // Padded with spaces, as the format allows, so that the data begins at a multiple of 8.
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();

  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(std::as_bytes(std::span(text)));
  for (const SafetensorsF32& tensor : tensors) file.write(std::as_bytes(tensor.values));
  file.commit();
}

}  // namespace runtime
