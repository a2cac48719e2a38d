// A GGUF file: metadata, tensors as they are dequantised, the model's shape and the vocabulary.
// Read by: runtime/formats/gguf.cpp runtime/gguf_model.cpp runtime/text/tokenizer_gguf.cpp
// runtime/formats/ggml_blocks.cpp
#include "runtime/formats/gguf.h"

#include <cstdint>
#include <cstring>

#include "runtime/model_source.h"
#include "runtime/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace {

// Writes what the reader reads: the format's own order of fields.
struct Writer {
  std::string bytes;
  template <class T>
  void raw(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    raw(std::uint64_t{value.size()});
    bytes += value;
  }
  void key(std::string_view name, std::uint32_t type) {
    text(name);
    raw(type);
  }
  void integer(std::string_view name, std::uint32_t value) {
    key(name, 4);
    raw(value);
  }
  void number(std::string_view name, float value) {
    key(name, 6);
    raw(value);
  }
  void word(std::string_view name, std::string_view value) {
    key(name, 8);
    text(value);
  }
  void words(std::string_view name, const std::vector<std::string>& values) {
    key(name, 9);
    raw(std::uint32_t{8});
    raw(std::uint64_t{values.size()});
    for (const std::string& value : values) text(value);
  }
};

// A llama of one layer, 8 wide, with a vocabulary of all bytes' written forms and one merge.
// The embedding's dimensions beyond (8, vocabulary) are 1.
std::string small_llama(std::uint32_t embedding_dimensions = 2, std::uint32_t heads = 2) {
  std::vector<std::string> tokens;
  for (int byte = 33; byte < 127; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  tokens.insert(tokens.end(), {"\xc4\xa0", "th", "<|end|>"});
  Writer file;
  file.raw(std::uint32_t{0x46554747});
  file.raw(std::uint32_t{3});
  file.raw(std::uint64_t{2});   // tensors
  file.raw(std::uint64_t{14});  // metadata
  file.word("general.architecture", "llama");
  file.integer("llama.embedding_length", 8);
  file.integer("llama.feed_forward_length", 16);
  file.integer("llama.block_count", 1);
  file.integer("llama.attention.head_count", heads);
  file.integer("llama.attention.head_count_kv", 1);
  file.integer("llama.context_length", 32);
  file.number("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  file.number("llama.rope.freq_base", 10000);
  file.word("tokenizer.ggml.model", "gpt2");
  file.word("tokenizer.ggml.pre", "smollm");
  file.words("tokenizer.ggml.tokens", tokens);
  file.words("tokenizer.ggml.merges", {"t h"});
  file.integer("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(tokens.size() - 1));
  const std::uint64_t vocabulary = tokens.size(), elements = vocabulary * 8;
  file.text("token_embd.weight");
  file.raw(embedding_dimensions);
  file.raw(std::uint64_t{8});
  file.raw(vocabulary);
  for (std::uint32_t more = 2; more < embedding_dimensions; ++more) file.raw(std::uint64_t{1});
  file.raw(std::uint32_t{1});  // F16
  file.raw(std::uint64_t{0});
  const std::uint64_t next = (elements * 2 + 31) / 32 * 32;
  file.text("output_norm.weight");
  file.raw(std::uint32_t{1});
  file.raw(std::uint64_t{8});
  file.raw(std::uint32_t{0});  // F32
  file.raw(next);
  file.bytes.resize((file.bytes.size() + 31) / 32 * 32 + next + 32);
  return file.bytes;
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
