// GGUF versions 2 and 3 (little-endian): metadata and tensors in one file, memory-mapped.
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/error.h"
#include "runtime/formats/ggml_blocks.h"
#include "runtime/formats/mapped_file.h"

namespace runtime {

// The numbers are the file's.
enum class GgufValueType : std::uint32_t {
  uint8 = 0,
  int8 = 1,
  uint16 = 2,
  int16 = 3,
  uint32 = 4,
  int32 = 5,
  float32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  uint64 = 10,
  int64 = 11,
  float64 = 12,
};

// An array stays in the file until it is read. `bytes` holds its `count` elements, which were checked to be
// well formed.
struct GgufArray {
  GgufValueType element_type;
  std::uint64_t count;
  std::span<const std::byte> bytes;
};

// Integers of any width become 64-bit ones, floats double.
using GgufValue = std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, GgufArray>;

struct GgufTensor {
  std::string name;
  GgmlType type;
  // Outermost dimension first, as in safetensors; the file has them the other way round. A linear layer is
  // [out, in].
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  std::int64_t element_count() const;
};

// Move-only, as the mapping is; every view lives as long as the object.
class Gguf {
 public:
  // Throws InputError on anything that departs from the format: truncation, another version, counts or
  // lengths that the file cannot hold, unknown types, offsets that are outside the file, unaligned or
  // overlapping, and a key or tensor that occurs twice.
  static Gguf open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  std::uint32_t version() const { return version_; }

  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  bool has(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }
  // One key's value; InputError when it is absent or of another type.
  std::string_view string(std::string_view key) const;
  std::int64_t integer(std::string_view key) const;  // any integer type whose value fits
  double number(std::string_view key) const;         // any integer or float type
  bool boolean(std::string_view key) const;
  std::vector<std::string_view> strings(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // sorted by name
  const GgufTensor* find(std::string_view name) const;                 // null when absent
  const GgufTensor& at(std::string_view name) const;                   // InputError when absent

  // Widens or dequantises. InputError when `out` has not element_count() elements.
  // llama.cpp's converter reorders the rows of a llama's attn_q and attn_k weights within each head for its
  // own RoPE; this function returns the rows in the file's order.
  void read_as_f32(std::string_view name, std::span<float> out) const;

 private:
  explicit Gguf(MappedFile file) : file_(std::move(file)) {}
  const GgufValue& value(std::string_view key) const;
  InputError wrong_type(std::string_view key, std::string_view expected) const;

  MappedFile file_;
  std::uint32_t version_ = 0;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace runtime
