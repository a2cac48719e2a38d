#include "runtime/text/vocabulary.h"

#include <array>
#include <unordered_map>

#include "runtime/error.h"
#include "runtime/formats/excerpt.h"
#include "runtime/text/unicode.h"

namespace runtime {
namespace {

// Printable Latin-1 without the space, the no-break space and the soft hyphen: bytes_to_unicode() of GPT-2's
// encoder.py.
bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

std::array<char32_t, 256> make_alphabet() {
  std::array<char32_t, 256> alphabet{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    alphabet[static_cast<std::size_t>(byte)] = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
  }
  return alphabet;
}

const std::array<char32_t, 256>& alphabet() {
  static const std::array<char32_t, 256> characters = make_alphabet();
  return characters;
}

const std::unordered_map<char32_t, char>& bytes_of_characters() {
  static const std::unordered_map<char32_t, char> bytes = [] {
    std::unordered_map<char32_t, char> result;
    for (std::size_t byte = 0; byte < 256; ++byte) result.emplace(alphabet()[byte], static_cast<char>(byte));
    return result;
  }();
  return bytes;
}

}  // namespace

std::string written_byte(std::uint8_t byte) {
  std::string result;
  append_utf8(alphabet()[byte], result);
  return result;
}

std::string bytes_of_written(std::string_view written) {
  const auto& bytes = bytes_of_characters();
  std::string result;
  for (std::size_t at = 0; at < written.size();) {
    const Codepoint codepoint = decode_utf8(written, at);
    if (const auto found = bytes.find(codepoint.value); found != bytes.end()) {
      result.push_back(found->second);
    } else {
      result += written.substr(at, codepoint.length);
    }
    at += codepoint.length;
  }
  return result;
}

void set_vocabulary(const std::string& where, std::span<const std::string_view> written,
                    std::span<const std::pair<std::string_view, std::string_view>> merges,
                    TokenizerDescription& description) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  ids.reserve(written.size());
  description.tokens.resize(written.size());
  for (std::size_t id = 0; id < written.size(); ++id) {
    if (written[id].empty()) continue;
    ids.emplace(written[id], static_cast<std::int32_t>(id));
    description.tokens[id] = bytes_of_written(written[id]);
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(written_byte(static_cast<std::uint8_t>(byte)));
    description.byte_tokens[byte] = found == ids.end() ? kNoToken : found->second;
  }

  description.merges.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto id_of = [&](const std::string& token) {
      const auto found = ids.find(token);
      if (found == ids.end()) {
        throw InputError(where + ": merge " + std::to_string(rank) + " names '" + excerpt(token) +
                         "', which the vocabulary does not have");
      }
      return found->second;
    };
    const std::string left(merges[rank].first);
    const std::string right(merges[rank].second);
    description.merges.push_back({id_of(left), id_of(right), id_of(left + right)});
  }
}

std::pair<std::string_view, std::string_view> split_merge(const std::string& where, std::string_view merge) {
  const std::size_t space = merge.find(' ', 1);
  if (space == std::string_view::npos || space + 1 == merge.size()) {
    throw InputError(where + ": merge '" + excerpt(merge) + "' must be two tokens with a space between");
  }
  return {merge.substr(0, space), merge.substr(space + 1)};
}

}  // namespace runtime
