#include "runtime/text/token_data.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <stdexcept>

#include "kernels/counter_random.h"
#include "runtime/error.h"
#include "runtime/formats/excerpt.h"
#include "runtime/formats/float_formats.h"
#include "runtime/text/unicode.h"
#include "sim/scenario/preset.h"

namespace runtime {
namespace {

namespace fs = std::filesystem;
using kernels::cpu::mix;

bool is_text(std::string_view content) {
  return content.find('\0') == std::string_view::npos && is_valid_utf8(content);
}

bool is_passed_over(const fs::path& name) {
  constexpr std::array<std::string_view, 3> kFolders = {"site-packages", "dist-packages", "__pycache__"};
  const std::string text = name.string();
  return text.starts_with('.') || std::ranges::count(kFolders, text) > 0;
}

// The regular files below a folder, sorted by path.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  try {
    const auto options = fs::directory_options::skip_permission_denied;
    for (auto entry = fs::recursive_directory_iterator(folder, options);
         entry != fs::recursive_directory_iterator(); ++entry) {
      if (is_passed_over(entry->path().filename()) || entry->is_symlink()) {
        entry.disable_recursion_pending();
      } else if (entry->is_regular_file()) {
        files.push_back(entry->path());
      }
    }
  } catch (const fs::filesystem_error& error) {
    throw InputError(folder.string() + ": cannot be listed (" + error.code().message() + ")");
  }
  std::ranges::sort(files);
  return files;
}

[[noreturn]] void refuse_token(const std::string& name, std::int64_t position, std::int64_t id,
                               std::int64_t vocab_size) {
  throw InputError(name + ": token " + std::to_string(id) + " at position " + std::to_string(position) +
                   " lies outside the model's vocabulary of " + std::to_string(vocab_size));
}

template <typename Token>
void check_tokens(const MappedFile& file, std::int64_t vocab_size) {
  const std::span<const std::byte> bytes = file.bytes();
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Token)) {
    const auto id = load_unaligned<Token>(bytes.data() + at);
    if (id >= static_cast<std::uint64_t>(vocab_size)) {
      refuse_token(file.path().string(), static_cast<std::int64_t>(at / sizeof(Token)), id, vocab_size);
    }
  }
}

template <typename Token>
void widen_tokens(const std::byte* from, std::span<std::int32_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<std::int32_t>(load_unaligned<Token>(from + i * sizeof(Token)));
  }
}

// The place of `value` in a permutation of [0, count) that `key` names: a four-round Feistel network on the
// smallest even number of bits that holds count, walked until it lands below count (fewer than four steps on
// average). Needs no memory, and any place can be asked for alone.
std::int64_t permute(std::int64_t value, std::int64_t count, std::uint64_t key) {
  int half_bits = 1;
  while ((std::int64_t{1} << (2 * half_bits)) < count) ++half_bits;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  auto place = static_cast<std::uint64_t>(value);
  do {
    std::uint64_t left = place >> half_bits;
    std::uint64_t right = place & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t next = left ^ (mix(key ^ mix(right ^ (round << 56))) & mask);
      left = right;
      right = next;
    }
    place = left << half_bits | right;
  } while (place >= static_cast<std::uint64_t>(count));
  return static_cast<std::int64_t>(place);
}

}  // namespace

TokenData TokenData::load(const fs::path& path, const Tokenizer* tokenizer, std::int64_t vocab_size) {
  const std::string name = path.string();
  if (path.extension() == ".bin") {
    const TokenWidth file_width = vocab_size <= 65536 ? TokenWidth::two : TokenWidth::four;
    const auto token_bytes = static_cast<std::size_t>(file_width);
    MappedFile file = MappedFile::open(path);
    if (file.bytes().empty() || file.bytes().size() % token_bytes != 0) {
      throw InputError(name + ": has " + std::to_string(file.bytes().size()) + " bytes; a multiple of the " +
                       std::to_string(token_bytes) + " bytes of a token is needed");
    }
    file_width == TokenWidth::two ? check_tokens<std::uint16_t>(file, vocab_size)
                                  : check_tokens<std::uint32_t>(file, vocab_size);
    return TokenData(name, std::move(file), file_width);
  }

  std::vector<std::int32_t> tokens;
  const auto append = [&](const fs::path& file_path, std::string_view text) {
    const auto begin = std::ssize(tokens);
    if (tokenizer != nullptr) {
      const std::vector<std::int32_t> ids = tokenizer->encode(text);
      tokens.insert(tokens.end(), ids.begin(), ids.end());
    } else {
      std::ranges::transform(text, std::back_inserter(tokens),
                             [](char byte) { return static_cast<unsigned char>(byte); });
    }
    const auto wrong =
        std::find_if(tokens.begin() + begin, tokens.end(), [&](std::int32_t id) { return id >= vocab_size; });
    if (wrong != tokens.end())
      refuse_token(file_path.string(), wrong - tokens.begin() - begin, *wrong, vocab_size);
  };
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    const bool has_end =
        tokenizer != nullptr && !tokenizer->eos().empty() && tokenizer->eos().front() < vocab_size;
    for (const fs::path& file_path : files_below(path)) {
      const MappedFile file = MappedFile::open(file_path);
      if (file.bytes().empty() || !is_text(file.text())) continue;
      append(file_path, file.text());
      if (has_end) tokens.push_back(tokenizer->eos().front());
    }
  } else {
    const MappedFile file = MappedFile::open(path);
    if (const std::size_t zero = file.text().find('\0'); zero != std::string_view::npos) {
      throw InputError(name + ": is not text (it has a zero at byte " + std::to_string(zero + 1) +
                       "); text, a folder of it, or a .bin of tokens is accepted");
    }
    append(path, file.text());
  }
  if (tokens.empty()) throw InputError(name + ": holds no text");
  return from_tokens(name, std::move(tokens));
}

TokenData TokenData::from_tokens(std::string name, std::vector<std::int32_t> tokens) {
  return TokenData(std::move(name), std::move(tokens), TokenWidth::four);
}

std::int64_t TokenData::size() const {
  if (const auto* tokens = std::get_if<std::vector<std::int32_t>>(&tokens_)) return std::ssize(*tokens);
  return std::ssize(std::get<MappedFile>(tokens_).bytes()) / static_cast<std::int64_t>(width_);
}

void TokenData::read(std::int64_t begin, std::span<std::int32_t> out) const {
  if (begin < 0 || begin > size() || std::ssize(out) > size() - begin)
    throw std::out_of_range("TokenData::read");
  if (const auto* tokens = std::get_if<std::vector<std::int32_t>>(&tokens_)) {
    std::copy_n(tokens->begin() + begin, out.size(), out.begin());
    return;
  }
  const std::byte* from =
      std::get<MappedFile>(tokens_).bytes().data() + begin * static_cast<std::int64_t>(width_);
  width_ == TokenWidth::two ? widen_tokens<std::uint16_t>(from, out) : widen_tokens<std::uint32_t>(from, out);
}

BatchReader::BatchReader(const TokenData& data, std::int64_t batch_size, std::int64_t sequence_length,
                         std::optional<std::uint64_t> shuffle_seed)
    : data_(&data),
      batch_size_(batch_size),
      sequence_length_(sequence_length),
      windows_((data.size() - 1) / sequence_length),
      shuffle_seed_(shuffle_seed) {
  if (windows_ < 1) {
    throw InputError(data.name() + ": holds " + std::to_string(data.size()) +
                     " tokens; a sequence length of " + std::to_string(sequence_length) + " needs at least " +
                     std::to_string(sequence_length + 1));
  }
}

std::int64_t BatchReader::window_at(std::int64_t position) const {
  const std::int64_t place = position % windows_;
  if (!shuffle_seed_) return place;
  const auto epoch = static_cast<std::uint64_t>(position / windows_);
  return permute(place, windows_, mix(*shuffle_seed_ ^ mix(epoch)));
}

void BatchReader::read(std::int64_t index, std::span<std::int32_t> inputs,
                       std::span<std::int32_t> targets) const {
  const auto length = static_cast<std::size_t>(sequence_length_);
  for (std::int64_t row = 0; row < batch_size_; ++row) {
    const std::int64_t begin = window_at(index * batch_size_ + row) * sequence_length_;
    const std::size_t at = static_cast<std::size_t>(row) * length;
    data_->read(begin, inputs.subspan(at, length));
    data_->read(begin + 1, targets.subspan(at, length));
  }
}

fs::path default_training_text() {
  fs::path best;
  int best_minor = -1;
  for (const char* root : {"/usr/lib", "/usr/local/lib"}) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(root, error)) {
      const std::string name = entry.path().filename().string();
      constexpr std::string_view kPrefix = "python3.";
      if (!name.starts_with(kPrefix) || !fs::exists(entry.path() / "os.py", error)) continue;
      const int minor = std::atoi(name.c_str() + kPrefix.size());
      if (minor <= best_minor) continue;
      best_minor = minor;
      best = entry.path();
    }
  }
  return best.empty() ? sim::preset_directory() / "texts" / "factory.txt" : best;
}

}  // namespace runtime
