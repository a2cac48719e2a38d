#include "runtime/formats/text_file.h"

#include <fstream>
#include <iterator>

namespace runtime {

std::optional<std::string> read_whole_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace runtime
