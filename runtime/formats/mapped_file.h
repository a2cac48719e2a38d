// A file's bytes, mapped read-only. Weights are read straight from the page cache, and opening costs nothing
// per byte.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace runtime {

// Move-only; the views that it hands out live as long as the object that holds the mapping (moving keeps them
// valid).
class MappedFile {
 public:
  // InputError when the path is missing, unreadable or not a regular file.
  static MappedFile open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  MappedFile(std::filesystem::path path, const std::byte* data, std::size_t size);

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;  // null when the file is empty: mmap refuses length 0
  std::size_t size_ = 0;
};

// Gives back the memory behind part of a mapping, but for the pages at its ends, which neighbours share. It
// can be read again, from the page cache. A model's weights would otherwise take their size twice: in the
// file's types and in those that kernels read.
void give_back(std::span<const std::byte> part);

}  // namespace runtime
