#include "runtime/formats/set_aside.h"

#include <cstdio>
#include <string>
#include <system_error>

#include "sim/foreign_text.h"

namespace runtime {

void set_aside(const std::filesystem::path& file, std::string_view reason, std::string_view instead) {
  constexpr int kMost = 99;  // the last one is replaced: they are not for ever
  std::filesystem::path kept = file;
  kept += ".set-aside";
  std::error_code error;
  for (int number = 2; number <= kMost && std::filesystem::exists(kept, error); ++number) {
    kept = file;
    kept += ".set-aside-" + std::to_string(number);
  }
  std::filesystem::rename(file, kept, error);
  std::string sentence(reason);
  sentence +=
      error ? "; it cannot be set aside (" + error.message() + ")" : "; it is kept as " + kept.string();
  sentence += ", and " + std::string(instead);
  std::fprintf(stderr, "ridgepoint: %s\n", sim::visible(sentence).c_str());
}

}  // namespace runtime
