// Weights as safetensors: the header, and values as they are widened.
#include "runtime/formats/safetensors.h"

#include <cstdint>

#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> all = files_of("tests/runtime/data", "small.safetensors");
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const runtime::SafetensorsF32 tensors[] = {
      {"a", {2, 2}, std::span(values).first(4)}, {"b", {2}, std::span(values).last(2)}, {"none", {0}, {}}};
  runtime::write_safetensors(folder() / "written", tensors, {{"format", "pt"}});
  all.push_back(content(folder() / "written"));
  return all;
}

void fuzz::read(std::string_view input) {
  const auto file = runtime::Safetensors::open(fuzz::file("model.safetensors", input));
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
}
