// Text out of a file, made fit for a message: one line, printable, short.
#pragma once

#include <string>
#include <string_view>

namespace runtime {

inline std::string excerpt(std::string_view text) {
  constexpr std::size_t kMaxBytes = 200;
  std::string result(text.substr(0, kMaxBytes));
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text.size() > kMaxBytes ? result + "..." : result;
}

}  // namespace runtime
