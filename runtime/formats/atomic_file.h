// A file that is either wholly replaced or not touched: written beside its target, synced, then renamed over
// it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace runtime {

// Writes go to `TARGET.tmp` in the target's folder (rename is atomic only within a file system). Without
// commit() the destructor removes that file; a process killed in between leaves it, and the next writer
// replaces it. One writer per target at a time.
class AtomicFile {
 public:
  // Every member throws DeviceError with the system's reason; the target then still holds what it held
  // before.
  explicit AtomicFile(const std::filesystem::path& target);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void commit();  // fsync, rename over the target, fsync of the folder

 private:
  void fail(const char* action, int error) const;

  std::filesystem::path target_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

// One that holds `content`. Throws as AtomicFile does.
void write_file(const std::filesystem::path& target, std::string_view content);

}  // namespace runtime
