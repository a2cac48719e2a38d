// A file to which each finished piece of a long work is added, so that what was interrupted or killed can be
// taken up again: NDJSON, a header that says which work it is of, then a line a piece.
#pragma once
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace runtime {

class WorkJournal {
 public:
  // Begins a file. `work` is everything that decides what the pieces hold; its hash is kept. Throws
  // InputError where the file exists, DeviceError where it cannot be written.
  static WorkJournal begin(const std::string& path, const std::string& work, std::int64_t pieces);
  // Goes on with one; a last line that was cut off when its writer was killed is dropped. Throws InputError
  // where it is missing, no journal, or one of another work.
  static WorkJournal resume(const std::string& path, const std::string& work, std::int64_t pieces);

  // Results of the pieces that it holds, by number.
  const std::vector<std::optional<std::string>>& known() const { return known_; }
  // `result` is one line of JSON. It is with the system, and so outlives this process, when this returns.
  void add(std::int64_t piece, const std::string& result);

 private:
  WorkJournal(std::string path, std::int64_t pieces);
  void write(const std::string& line);

  std::string path_;
  std::vector<std::optional<std::string>> known_;
  std::ofstream file_;
};

}  // namespace runtime
