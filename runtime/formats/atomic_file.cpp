#include "runtime/formats/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/error.h"

namespace runtime {

AtomicFile::AtomicFile(const std::filesystem::path& target)
    : target_(target), temporary_(target.string() + ".tmp") {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("created", errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // Linux moves at most 0x7ffff000 bytes a call; smaller pieces also let a signal in.
    const std::size_t piece = std::min<std::size_t>(bytes.size(), std::size_t{64} << 20);
    const ssize_t written = ::write(descriptor_, bytes.data(), piece);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("written", errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail("written", errno);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("put in place", errno);
  ::close(descriptor_);  // synced already, so an error here could lose nothing
  descriptor_ = -1;      // and there is no temporary file left to remove

  // The rename itself survives a power cut only once the folder is synced. Some file systems cannot; the data
  // is safe.
  const std::filesystem::path folder = target_.has_parent_path() ? target_.parent_path() : ".";
  const int folder_descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_descriptor >= 0) {
    ::fsync(folder_descriptor);
    ::close(folder_descriptor);
  }
}

void AtomicFile::fail(const char* action, int error) const {
  throw DeviceError(target_.string() + ": cannot be " + action + " (" + std::strerror(error) +
                    "); what stood there before is unchanged");
}

void write_file(const std::filesystem::path& target, std::string_view content) {
  AtomicFile file(target);
  file.write(std::as_bytes(std::span(content)));
  file.commit();
}

}  // namespace runtime
