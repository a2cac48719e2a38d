// GGUF files of a small llama whose matrices have given types.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/formats/float_formats.h"
#include "runtime/formats/ggml_blocks.h"
#include "tests/support/gguf_file.h"

namespace tests {

using TypeOfTensor = std::function<runtime::GgmlType(std::string_view tensor, int layer)>;

// Where a block of drawn bytes has numbers in fp16, which drawn bits would make huge or no numbers at all.
inline std::vector<std::size_t> halves_of(runtime::GgmlType type) {
  using enum runtime::GgmlType;
  switch (type) {
    case q4_0:
    case q5_0:
    case q8_0:
    case iq4_nl:
    case iq4_xs:
    case f16:
      return {0};
    case q4_1:
    case q5_1:
    case q4_k:
    case q5_k:
      return {0, 2};
    case q2_k:
      return {80, 82};
    case q3_k:
      return {108};
    case q6_k:
      return {208};
    default:
      return {};
  }
}

// Two layers with rows of 256; weights are drawn, those of norms 1. Where `head` is a type, the head has
// weights of its own.
inline std::string llama_of_types(const TypeOfTensor& type_of, std::optional<runtime::GgmlType> head = {}) {
  constexpr std::uint64_t kWidth = 256, kVocabulary = 8;
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dimensions;
    runtime::GgmlType type;
  };
  std::vector<Tensor> tensors{{"token_embd.weight", {kWidth, kVocabulary}, type_of("token_embd", 0)},
                              {"output_norm.weight", {kWidth}, runtime::GgmlType::f32}};
  if (head) tensors.push_back({"output.weight", {kWidth, kVocabulary}, *head});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    for (const char* const name :
         {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
      tensors.push_back({prefix + name + ".weight", {kWidth, kWidth}, type_of(name, layer)});
    for (const char* const name : {"attn_norm", "ffn_norm"})
      tensors.push_back({prefix + name + ".weight", {kWidth}, runtime::GgmlType::f32});
  }
  std::string header =
      gguf_header(tensors.size(), 7) + gguf_word("general.architecture", "llama") +
      gguf_integer("llama.embedding_length", kWidth) + gguf_integer("llama.feed_forward_length", kWidth) +
      gguf_integer("llama.block_count", 2) + gguf_integer("llama.attention.head_count", 4) +
      gguf_integer("llama.context_length", 32) + gguf_number("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  std::mt19937 random(1);
  std::string data;
  for (const Tensor& t : tensors) {
    header += gguf_tensor(t.name, t.dimensions, static_cast<std::uint32_t>(t.type), data.size());
    const runtime::GgmlTypeInfo& info = runtime::ggml_type_info(t.type);
    std::uint64_t elements = 1;
    for (const std::uint64_t of : t.dimensions) elements *= of;
    for (std::uint64_t e = 0; e < elements; e += static_cast<std::uint64_t>(info.elements)) {
      if (t.type == runtime::GgmlType::f32) {
        data += raw(1.0f);
        continue;
      }
      std::string block(static_cast<std::size_t>(info.bytes), '\0');
      for (char& byte : block) byte = static_cast<char>(random());
      for (const std::size_t at : halves_of(t.type)) {
        const float number = 1e-4f * static_cast<float>(1 + random() % 64);
        block.replace(at, 2, raw(runtime::f32_to_f16(number)));
      }
      data += block;
    }
    data.resize((data.size() + 31) / 32 * 32);
  }
  return padded(header, 0) + data;
}

}  // namespace tests
