// Weights as safetensors: the header, and values as they are widened.
// Read by: runtime/formats/safetensors.cpp
#include "runtime/formats/safetensors.h"

#include <cstdint>
#include <cstring>

#include "tests/fuzz/fuzz.h"

namespace {

constexpr std::size_t kLengthBytes = 8;

std::string with_header(const std::string& header) {
  const std::uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + header;
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> all = files_of("tests/runtime/data", "small.safetensors");
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const runtime::SafetensorsF32 tensors[] = {
      {"a", {2, 2}, std::span(values).first(4)}, {"b", {2}, std::span(values).last(2)}, {"none", {0}, {}}};
  runtime::write_safetensors(folder() / "written", tensors, {{"format", "pt"}});
  all.push_back(content(folder() / "written"));
  // Two tensors in one place; and no tensors at all.
  all.push_back(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})") +
                std::string(8, '\0'));
  all.push_back(with_header("{}"));
  return all;
}

// The header's length, from where its brackets close.
void fuzz::mend(std::string& input) {
  if (input.size() <= kLengthBytes) return;
  const auto begin = input.begin() + kLengthBytes;
  int depth = 0;
  bool quoted = false;
  auto end = begin;
  for (; end != input.end(); ++end) {
    if (quoted && *end == '\\' && end + 1 != input.end()) {
      ++end;
      continue;
    }
    if (*end == '"') quoted = !quoted;
    if (quoted) continue;
    if (*end == '{' || *end == '[') ++depth;
    if ((*end == '}' || *end == ']') && --depth <= 0) {
      ++end;
      break;
    }
  }
  const auto length = static_cast<std::uint64_t>(end - begin);
  std::memcpy(input.data(), &length, sizeof length);
}

void fuzz::read(std::string_view input) {
  const auto file = runtime::Safetensors::open(fuzz::file("model.safetensors", input));
  std::uint64_t length = 0;
  std::memcpy(&length, input.data(), sizeof length);
  const std::size_t first = input.find_first_not_of(" \t\r\n", kLengthBytes);
  require(first != std::string_view::npos && input[first] == '{', "a header is an object");
  std::uint64_t bytes = 0;
  for (const runtime::SafetensorsTensor& tensor : file.tensors()) {
    bytes += tensor.bytes.size();
    require(bytes <= input.size(), "tensors lie in the file, apart from one another");
    require(tensor.element_count() >= 0 &&
                static_cast<std::uint64_t>(tensor.element_count()) <= tensor.bytes.size(),
            "a tensor has no more elements than bytes");
    require(file.find(tensor.name) == &tensor, "a tensor is found by its name");
    if (tensor.dtype != "F32" && tensor.dtype != "F16" && tensor.dtype != "BF16") continue;
    std::vector<float> values(static_cast<std::size_t>(tensor.element_count()));
    file.read_as_f32(tensor.name, values);
  }
  require(kLengthBytes + length + bytes == input.size(), "tensors are all of the data, each byte once");
}
