// The tokenizer against ids that Hugging Face's tokenizers and llama.cpp gave
// (tests/parity/make_tokenizer_reference.py).
#include "runtime/text/tokenizer.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "runtime/error.h"
#include "runtime/formats/gguf.h"
#include "runtime/text/pre_tokenizer.h"
#include "runtime/text/unicode.h"
#include "source_folder.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace {

using nlohmann::json;
using runtime::Tokenizer;

const std::filesystem::path kData = RIDGEPOINT_SOURCE_DIR "/tests/runtime/data";

const json& cases() {
  static const json loaded = json::parse(std::ifstream(kData / "tokenizer_cases.json"));
  return loaded;
}

Tokenizer small_tokenizer(const std::string& name) {
  return Tokenizer::from_tokenizer_json(kData / "tokenizers" / name / "tokenizer.json");
}

// A tokenizer.json that loads, to be spoilt one field at a time.
json minimal_tokenizer() {
  return {{"added_tokens", json::array({{{"id", 3}, {"content", "<end>"}, {"special", true}}})},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}}};
}

std::string load_error(const json& tokenizer) {
  const TemporaryFolder folder;
  try {
    Tokenizer::from_tokenizer_json(folder.write("tokenizer.json", tokenizer.dump()));
  } catch (const runtime::InputError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

const char* const kSmallTokenizers[] = {"gpt2", "smollm", "llama3", "qwen2"};

}  // namespace

TEST_CASE("ids equal Hugging Face's for the pipelines of GPT-2, SmolLM, Llama 3 and Qwen2") {
  for (const char* name : kSmallTokenizers) {
    const Tokenizer tokenizer = small_tokenizer(name);
    for (std::size_t i = 0; i < cases()["texts"].size(); ++i) {
      const auto text = cases()["texts"][i].get<std::string>();
      CAPTURE(name, text);
      CHECK(tokenizer.encode(text, true) == cases()["ids"][name][i].get<std::vector<std::int32_t>>());
    }
  }
}

TEST_CASE("the three character classes have Unicode 16.0's sizes") {
  // What \p{L}, \p{N} and \s match in Hugging Face tokenizers 0.23.3, over all code points.
  std::array<int, 4> counts{};
  for (char32_t codepoint = 0; codepoint < 0x110000; ++codepoint) {
    ++counts[static_cast<std::size_t>(runtime::classify(codepoint))];
  }
  CHECK(counts[static_cast<std::size_t>(runtime::CodepointClass::letter)] == 141028);
  CHECK(counts[static_cast<std::size_t>(runtime::CodepointClass::number)] == 1911);
  CHECK(counts[static_cast<std::size_t>(runtime::CodepointClass::whitespace)] == 25);
}

TEST_CASE("pre-tokenizers cut text where Hugging Face's regular expressions do") {
  using enum runtime::PreTokenizerStep;
  const std::vector<std::pair<std::string, std::vector<runtime::PreTokenizerStep>>> pipelines = {
      {"gpt2", {gpt2}}, {"smollm", {each_number, gpt2}}, {"llama3", {llama3}}, {"qwen2", {qwen2}}};
  for (const auto& [name, steps] : pipelines) {
    for (std::size_t i = 0; i < cases()["texts"].size(); ++i) {
      auto text = cases()["texts"][i].get<std::string>();
      CAPTURE(name, text);
      if (name == "qwen2") text = runtime::to_nfc(text);
      std::deque<std::string> storage;
      std::vector<std::size_t> lengths;
      for (const auto piece : runtime::pre_tokenize(text, steps, storage)) lengths.push_back(piece.size());
      CHECK(lengths == cases()["pieces"][name][i].get<std::vector<std::size_t>>());
    }
  }
}

TEST_CASE("SmolLM2's ids equal llama.cpp's and Hugging Face's on the same file, and decode to the text") {
  const char* home = std::getenv("HOME");
  const std::filesystem::path model = std::filesystem::path(home != nullptr ? home : "") /
                                      ".cache/ridgepoint/models/smollm2-135m-instruct.gguf";
  if (!std::filesystem::exists(model)) SKIP_WITHOUT(model.string() + ", which ./run fetches");
  const Tokenizer tokenizer = Tokenizer::from_gguf(runtime::Gguf::open(model));
  CHECK(tokenizer.vocab_size() == 49152);
  CHECK(tokenizer.bos() == 1);
  CHECK(tokenizer.eos() == std::vector<std::int32_t>{0, 2});
  for (std::size_t i = 0; i < cases()["texts"].size(); ++i) {
    const auto text = cases()["texts"][i].get<std::string>();
    CAPTURE(text);
    const auto ids = tokenizer.encode(text);
    CHECK(ids == cases()["ids"]["smollm2"][i].get<std::vector<std::int32_t>>());
    CHECK(tokenizer.decode(ids) == text);
  }
}

TEST_CASE("decoding restores any text of a tokenizer that has all 256 bytes, valid UTF-8 or not") {
  std::mt19937 random(7);
  for (const char* name : {"gpt2", "smollm", "llama3"}) {
    const Tokenizer tokenizer = small_tokenizer(name);
    for (int round = 0; round < 200; ++round) {
      std::string text(random() % 60, '\0');
      for (char& c : text) c = static_cast<char>(round % 2 == 0 ? random() % 256 : 0xC0 + random() % 64);
      CAPTURE(name, round);
      CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
    }
  }
}

TEST_CASE("a stream decoder gives only whole characters, and in all the same bytes") {
  const Tokenizer tokenizer = Tokenizer::bytes();
  const std::string text =
      "aé€😀\xF0\x9F"
      "b\xE2\x82";
  runtime::StreamDecoder decoder(tokenizer);
  std::vector<std::string> pieces;
  for (const std::int32_t id : tokenizer.encode(text)) pieces.push_back(decoder.push(id));
  const std::vector<std::string> expected = {"a",
                                             "",
                                             "é",
                                             "",
                                             "",
                                             "€",
                                             "",
                                             "",
                                             "",
                                             "😀",
                                             "",
                                             "",
                                             "\xF0\x9F"
                                             "b",
                                             "",
                                             ""};
  CHECK(pieces == expected);
  CHECK(decoder.finish() == "\xE2\x82");
  CHECK(decoder.finish().empty());
}

TEST_CASE("merging the lowest rank first gives the same as the quadratic definition") {
  // An independent implementation: rescan the whole word for the best pair after each merge.
  std::mt19937 random(11);
  std::array<std::int32_t, 256> byte_tokens{};
  for (int byte = 0; byte < 256; ++byte) byte_tokens[static_cast<std::size_t>(byte)] = byte;
  std::vector<runtime::TokenMerge> merges;
  for (std::int32_t id = 256; id < 400; ++id) {
    const auto any = [&] {
      return id > 260 && random() % 2 ? static_cast<std::int32_t>(256 + random() % (id - 256))
                                      : static_cast<std::int32_t>('a' + random() % 3);
    };
    merges.push_back({any(), any(), id});
  }
  const runtime::BytePairMerger merger(byte_tokens, merges);
  for (int round = 0; round < 300; ++round) {
    std::string word(1 + random() % 80, ' ');
    for (char& c : word) c = static_cast<char>('a' + random() % 3);
    std::vector<std::int32_t> expected(word.begin(), word.end());
    while (true) {
      std::ptrdiff_t best = -1;
      std::size_t best_rank = merges.size();
      for (std::ptrdiff_t i = 0; i + 1 < std::ssize(expected); ++i) {
        // The last of equal pairs in the list counts.
        for (std::size_t rank = merges.size(); rank-- > 0;) {
          if (merges[rank].left != expected[i] || merges[rank].right != expected[i + 1]) continue;
          if (rank < best_rank) {
            best = i;
            best_rank = rank;
          }
          break;
        }
      }
      if (best < 0) break;
      expected[best] = merges[best_rank].merged;
      expected.erase(expected.begin() + best + 1);
    }
    std::vector<std::int32_t> ids;
    merger.encode(word, ids);
    CHECK(ids == expected);
  }
}

TEST_CASE("a megabyte in one word is encoded without a quadratic step") {
  const Tokenizer tokenizer = small_tokenizer("gpt2");
  const std::string text(1 << 20, '=');
  CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
}

TEST_CASE("end tokens come from the configuration beside tokenizer.json") {
  const TemporaryFolder folder;
  const auto path = folder.write("tokenizer.json", minimal_tokenizer().dump());
  CHECK(Tokenizer::from_tokenizer_json(path).eos().empty());
  folder.write("tokenizer_config.json", R"({"eos_token": {"content": "<end>"}, "bos_token": null})");
  CHECK(Tokenizer::from_tokenizer_json(path).eos() == std::vector<std::int32_t>{3});
  folder.write("generation_config.json", R"({"eos_token_id": [1, 3, 50256], "bos_token_id": 0})");
  const Tokenizer tokenizer = Tokenizer::from_tokenizer_json(path);
  CHECK(tokenizer.eos() == std::vector<std::int32_t>{1, 3});
  CHECK(tokenizer.bos() == 0);
  CHECK(tokenizer.is_special(3));
  CHECK_FALSE(tokenizer.is_special(2));
}

TEST_CASE("a tokenizer.json of another kind, or malformed, is refused with the field and what is supported") {
  REQUIRE(load_error(minimal_tokenizer()).empty());
  const auto spoilt = [](const char* pointer, const json& value) {
    json tokenizer = minimal_tokenizer();
    tokenizer[json::json_pointer(pointer)] = value;
    return load_error(tokenizer);
  };
  CHECK(contains(spoilt("/model/type", "Unigram"), "model.type is Unigram; only BPE is supported"));
  CHECK(contains(spoilt("/model/byte_fallback", true), "model.byte_fallback"));
  CHECK(contains(spoilt("/model/vocab", json::array()), "model.vocab must be an object"));
  CHECK(contains(spoilt("/model/vocab/a", -1), "model.vocab['a'] must be a token id"));
  CHECK(contains(spoilt("/model/vocab/a", 4000000000), "model.vocab['a'] must be a token id"));
  CHECK(contains(spoilt("/model/vocab/a", 1), "twice"));
  CHECK(contains(spoilt("/model/merges", {"a c"}), "merge 0 names 'c'"));
  CHECK(contains(spoilt("/model/merges", {"b a"}), "merge 0 names 'ba'"));
  CHECK(contains(spoilt("/model/merges", {"ab"}), "merge 'ab' must be two tokens"));
  CHECK(contains(spoilt("/model/merges", {""}), "merge '' must be two tokens"));
  CHECK(contains(spoilt("/model/merges", {1}), "model.merges must hold"));
  CHECK(
      contains(spoilt("/normalizer", {{"type", "Lowercase"}}), "normalizer Lowercase is not supported; NFC"));
  CHECK(contains(spoilt("/pre_tokenizer/type", "Metaspace"), "pre_tokenizer Metaspace is not supported"));
  CHECK(contains(spoilt("/pre_tokenizer", nullptr), "no ByteLevel"));
  CHECK(contains(spoilt("/added_tokens/0/id", "x"), "added_tokens '<end>'.id must be a token id"));
  CHECK(contains(spoilt("/added_tokens/0/single_word", true), "single_word"));
  CHECK(contains(spoilt("/post_processor", {{"type", "BertProcessing"}}), "post_processor BertProcessing"));

  const std::string whole = minimal_tokenizer().dump();
  const TemporaryFolder folder;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto path = folder.write("tokenizer.json", whole.substr(0, length));
    CHECK_THROWS_AS(Tokenizer::from_tokenizer_json(path), runtime::InputError);
  }
}

TEST_CASE("an id outside the vocabulary is refused") {
  const Tokenizer tokenizer = Tokenizer::bytes();
  CHECK_THROWS_AS(tokenizer.token_bytes(256), runtime::InputError);
  CHECK_THROWS_AS(tokenizer.token_bytes(-1), runtime::InputError);
}
