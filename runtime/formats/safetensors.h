// safetensors: 8 bytes of header length N (little-endian), N bytes of JSON {name: {dtype, shape,
// data_offsets}}, then the tensors' bytes, row-major and little-endian. Source:
// https://github.com/huggingface/safetensors#format
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/formats/mapped_file.h"

namespace runtime {

struct SafetensorsTensor {
  std::string name;
  std::string dtype;                 // as the format names it: "F32", "BF16", "I64", ...
  std::vector<std::int64_t> shape;   // outermost dimension first; empty for a scalar
  std::span<const std::byte> bytes;  // in the mapping; no alignment is promised
  std::int64_t element_count() const;
};

// One file, or the shards that an index names, opened as one set of tensors. Move-only, as the mapping is.
class Safetensors {
 public:
  // `path`: a .safetensors file, a model.safetensors.index.json, or a folder that holds model.safetensors or
  // that index. InputError on anything that departs from the format: lengths, offsets that leave the file,
  // overlap or leave holes, an unknown dtype, a shape that disagrees with its bytes, a name twice, a shard
  // without a tensor that the index promises.
  static Safetensors open(const std::filesystem::path& path);

  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }  // sorted by name
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const SafetensorsTensor* find(std::string_view name) const;  // null when absent
  const SafetensorsTensor& at(std::string_view name) const;    // InputError when absent

  // Widens F32, F16 or BF16. InputError when the dtype is another or `out` has not element_count() elements.
  void read_as_f32(std::string_view name, std::span<float> out) const;

 private:
  void add_file(const std::filesystem::path& path);
  void sort_by_name();

  std::filesystem::path path_;
  std::vector<MappedFile> files_;
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

struct SafetensorsF32 {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;
};

// Writes one file of F32 tensors in the order given, atomically: DeviceError (say, a full disk) leaves what
// stood at `path`. std::invalid_argument when a shape disagrees with its values or a name comes twice.
void write_safetensors(const std::filesystem::path& path, std::span<const SafetensorsF32> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace runtime
