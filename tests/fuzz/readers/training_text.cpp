// Training data: text, or a .bin of token ids.
// Read by: runtime/text/token_data.cpp runtime/text/unicode.cpp
#include <span>
#include <stdexcept>

#include "runtime/text/token_data.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  return {"The ridge of a roofline.\n", std::string("\x01\x00\x02\x00\xff\x00\x03\x00", 8), "\xe2\x82\xac\n"};
}

void fuzz::read(std::string_view input) {
  static const runtime::Tokenizer bytes = runtime::Tokenizer::bytes();
  std::filesystem::path before;
  for (const char* const name : {"data.txt", "data.bin"}) {
    try {
      const auto data = runtime::TokenData::load(fuzz::file(name, input), &bytes, bytes.vocab_size());
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(data.size()));
      data.read(0, tokens);
      for (const std::int32_t token : tokens)
        require(token >= 0 && token < bytes.vocab_size(), "tokens are of the vocabulary");
      for (const std::int64_t begin : {std::int64_t{-1}, data.size() + 1}) {
        bool refused = false;
        try {
          data.read(begin, std::span(tokens).first(0));
        } catch (const std::out_of_range&) {
          refused = true;
        }
        require(refused, "nothing is read outside of the data");
      }
    } catch (const std::runtime_error& error) {
      require(std::string(error.what()).find(name) != std::string::npos, "a refusal names the file");
    }
  }
}
