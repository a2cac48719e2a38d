// What all fuzzed readers share: one input under the laws that hold for every reader, and libFuzzer's hooks.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <typeinfo>

#include "runtime/error.h"
#include "sim/preset_error.h"
#include "source_folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate.h"

namespace fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestMessage = 20'000;

struct OwnFolder {
  OwnFolder() {
    std::error_code none;
    const fs::path memory = "/dev/shm";
    const fs::path parent = fs::is_directory(memory, none) ? memory : fs::temp_directory_path();
    std::string name = (parent / "ridgepoint-fuzz-XXXXXX").string();
    require(mkdtemp(name.data()) != nullptr, "a folder can be made for inputs");
    path = name;
  }
  ~OwnFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

// A refusal is one sentence that says which file.
void check_refusal(const std::string& message) {
  const bool names_file =
      message.find(kFile) != std::string::npos || message.find(folder().string()) != std::string::npos;
  if (!names_file || message.size() > kLongestMessage)
    std::fprintf(stderr, "refused with: %.2000s\n", message.c_str());
  require(names_file, "a refusal names the file");
  require(message.size() <= kLongestMessage, "a refusal is a sentence, not the file again");
}

}  // namespace

void require(bool holds, const char* law) {
  if (holds) return;
  std::fprintf(stderr, "law broken: %s\n", law);
  std::abort();
}

void require_same(const std::string& a, const std::string& b, const char* law) {
  if (a == b) return;
  const auto at =
      static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  const std::size_t from = at < 60 ? 0 : at - 60;
  std::fprintf(stderr, "first:  %s\nsecond: %s\n", a.substr(from, 120).c_str(),
               b.substr(std::min(from, b.size()), 120).c_str());
  require(false, law);
}

const fs::path& folder() {
  static const OwnFolder own;
  return own.path;
}

fs::path file(std::string_view name, std::string_view content) {
  const fs::path path = folder() / name;
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  return path;
}

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> files_of(const fs::path& below_the_repository, std::string_view ending) {
  constexpr std::uintmax_t kLargest = 24'000;
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(fs::path(RIDGEPOINT_SOURCE_DIR) / below_the_repository))
    if (entry.is_regular_file() && entry.file_size() <= kLargest &&
        entry.path().filename().string().ends_with(ending))
      paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());  // the same on every machine
  std::vector<std::string> contents;
  for (const fs::path& path : paths) contents.push_back(content(path));
  return contents;
}

}  // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    fuzz::read({reinterpret_cast<const char*>(data), size});
  } catch (const sim::PresetError& error) {
    fuzz::check_refusal(error.what());
  } catch (const runtime::InputError& error) {
    fuzz::check_refusal(error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", typeid(error).name(), error.what());
    fuzz::require(false, "a reader refuses with an error that names the file");
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t longest)
    __attribute__((weak));

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t longest,
                                               unsigned int seed) {
  std::mt19937_64 random(seed);
  if (LLVMFuzzerMutate != nullptr && random() % 2) return LLVMFuzzerMutate(data, size, longest);
  static const std::vector<std::string> others = fuzz::seeds();
  const std::string changed =
      fuzz::mutated({reinterpret_cast<const char*>(data), size}, others, longest, random);
  if (!changed.empty()) std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}

// --write-seeds FOLDER: for the corpus that libFuzzer begins with.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc != 3 || std::strcmp((*argv)[1], "--write-seeds") != 0) return 0;
  int number = 0;
  for (const std::string& seed : fuzz::seeds())
    std::ofstream(std::filesystem::path((*argv)[2]) / ("seed-" + std::to_string(number++)), std::ios::binary)
        << seed;
  std::exit(0);
}
