// Training data: the tokens of a text or of a token file, and the windows of tokens that make up batches.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "runtime/formats/mapped_file.h"
#include "runtime/text/tokenizer.h"

namespace runtime {

// Bytes of a token in a .bin file (little-endian, unsigned).
enum class TokenWidth { two = 2, four = 4 };

class TokenData {
 public:
  // `path`: a .bin file of tokens, a text file, or a folder whose text files are read in the order of their
  // paths, each followed by the tokenizer's end token where it has one. In a folder, files that are not text
  // (a NUL byte, or invalid UTF-8) are skipped, and so are links, hidden names and installed packages
  // (site-packages, dist-packages, __pycache__). Without a `tokenizer` each byte of a text is a token. The
  // width of a .bin is 2 bytes for a vocabulary of at most 65,536, else 4. InputError, naming file, position,
  // id and vocabulary, when a token is not below `vocab_size`; when there is no token.
  static TokenData load(const std::filesystem::path& path, const Tokenizer* tokenizer,
                        std::int64_t vocab_size);
  static TokenData from_tokens(std::string name, std::vector<std::int32_t> tokens);

  const std::string& name() const { return name_; }  // what was loaded, for messages
  std::int64_t size() const;                         // tokens
  // Tokens [begin, begin + out.size()), which must lie within size().
  void read(std::int64_t begin, std::span<std::int32_t> out) const;

 private:
  TokenData(std::string name, std::variant<std::vector<std::int32_t>, MappedFile> tokens, TokenWidth width)
      : name_(std::move(name)), tokens_(std::move(tokens)), width_(width) {}

  std::string name_;
  std::variant<std::vector<std::int32_t>, MappedFile> tokens_;  // a .bin stays in its file
  TokenWidth width_;                                            // of the file's
};

// Cuts the data into floor((size - 1) / T) windows of T inputs, each with T targets one token further on.
// Window w begins at token w * T. Each window is used once per epoch; tokens behind the last are not used.
// Sequential: row b of batch i is window i * B + b, and reading begins again after the last window.
// Shuffled: the same, but each epoch has its own order. It is a pure function of the seed and the epoch, so a
// resumed run needs to know only the number of its next batch.
class BatchReader {
 public:
  // `shuffle_seed`: none is sequential. `data` must outlive the reader. InputError when it has fewer than T +
  // 1 tokens.
  BatchReader(const TokenData& data, std::int64_t batch_size, std::int64_t sequence_length,
              std::optional<std::uint64_t> shuffle_seed = std::nullopt);

  // Fills inputs and targets, (B, T) each, of the batch `index`, counted from 0 over the whole run
  // (micro-batches count).
  void read(std::int64_t index, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const;

  std::int64_t windows() const { return windows_; }
  // The number of the window that is read at `position`, counted from 0 over all epochs.
  std::int64_t window_at(std::int64_t position) const;

 private:
  const TokenData* data_;
  std::int64_t batch_size_, sequence_length_, windows_;
  std::optional<std::uint64_t> shuffle_seed_;
};

// Real text that most machines have: the folder of Python's standard library (the newest of
// /usr/lib/python3.* and /usr/local/lib/python3.*), or where there is none, as in a browser, a short one of
// the presets.
std::filesystem::path default_training_text();

}  // namespace runtime
