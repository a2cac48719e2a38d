// A GGUF file: metadata, tensors as they are dequantised, the model's shape and the vocabulary.
// Read by: runtime/formats/gguf.cpp runtime/gguf_model.cpp runtime/text/tokenizer_gguf.cpp
// runtime/formats/ggml_blocks.cpp
#include "runtime/formats/gguf.h"

#include <cstdint>

#include "runtime/model_source.h"
#include "runtime/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/gguf_file.h"

namespace {

// A llama of one layer, 8 wide, with a vocabulary of all bytes' written forms and one merge.
// The embedding's dimensions beyond (8, vocabulary) are 1.
std::string small_llama(std::uint32_t embedding_dimensions = 2, std::uint32_t heads = 2) {
  std::vector<std::string> tokens;
  for (int byte = 33; byte < 127; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  tokens.insert(tokens.end(), {"\xc4\xa0", "th", "<|end|>"});
  std::string header = tests::gguf_header(2, 14);
  header += tests::gguf_word("general.architecture", "llama");
  header += tests::gguf_integer("llama.embedding_length", 8);
  header += tests::gguf_integer("llama.feed_forward_length", 16);
  header += tests::gguf_integer("llama.block_count", 1);
  header += tests::gguf_integer("llama.attention.head_count", heads);
  header += tests::gguf_integer("llama.attention.head_count_kv", 1);
  header += tests::gguf_integer("llama.context_length", 32);
  header += tests::gguf_number("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  header += tests::gguf_number("llama.rope.freq_base", 10000);
  header += tests::gguf_word("tokenizer.ggml.model", "gpt2");
  header += tests::gguf_word("tokenizer.ggml.pre", "smollm");
  header += tests::gguf_words("tokenizer.ggml.tokens", tokens);
  header += tests::gguf_words("tokenizer.ggml.merges", {"t h"});
  header += tests::gguf_integer("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(tokens.size() - 1));
  std::vector<std::uint64_t> dimensions{8, tokens.size()};
  dimensions.resize(embedding_dimensions, 1);
  constexpr std::uint32_t kF16 = 1, kF32 = 0;
  const std::uint64_t next = (tokens.size() * 8 * 2 + 31) / 32 * 32;
  header += tests::gguf_tensor("token_embd.weight", dimensions, kF16, 0);
  header += tests::gguf_tensor("output_norm.weight", {8}, kF32, next);
  return tests::padded(header, next + 32);
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> all = files_of("tests/runtime/data", ".gguf");
  all.push_back(small_llama());
  all.push_back(small_llama(3));     // no table of rows
  all.push_back(small_llama(5));     // more dimensions than the format has
  all.push_back(small_llama(2, 0));  // no head
  return all;
}

void fuzz::read(std::string_view input) {
  const std::filesystem::path path = fuzz::file("model.gguf", input);
  const auto file = runtime::Gguf::open(path);
  for (const runtime::GgufTensor& tensor : file.tensors()) {
    require(tensor.bytes.size() <= input.size(), "a tensor lies in the file");
    require(tensor.shape.size() <= 4, "a tensor has at most four dimensions");
    std::vector<float> values(static_cast<std::size_t>(tensor.element_count()));
    file.read_as_f32(tensor.name, values);
  }
  const runtime::ModelSource source = runtime::open_model(path.string());
  require(file.at("token_embd.weight").shape.size() == 2, "an embedding is a table of rows");
  if (!source.tokenizer) return;
  const std::string text = "the ridge\xff";
  for (const std::int32_t id : source.tokenizer->encode(text, true))
    require(id >= 0 && id < source.tokenizer->vocab_size(), "ids are of the vocabulary");
}
