#include "runtime/checkpoint_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>

#include "runtime/error.h"
#include "runtime/formats/excerpt.h"

namespace runtime {
namespace {

// "process 1234 on host, since 2026-01-31 12:00:00 UTC"
std::string this_process() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  std::array<char, 32> time{};
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::strftime(time.data(), time.size(), "%F %T UTC", &parts);
  return "process " + std::to_string(::getpid()) + " on " + host.data() + ", since " + time.data();
}

}  // namespace

CheckpointLock::CheckpointLock(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / "lock";
  descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0 && errno == ENOENT) return;
  if (descriptor_ < 0)
    throw DeviceError(directory.string() + ": checkpoints cannot be kept there (" + std::strerror(errno) +
                      "); name another folder");
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    // A file system without locks is used without one.
    if (errno != EWOULDBLOCK) return;
    std::array<char, 300> holder{};
    const ssize_t read = ::pread(descriptor_, holder.data(), holder.size() - 1, 0);
    ::close(descriptor_);
    throw InputError(directory.string() + " is in use by another run (" +
                     (read > 0 ? excerpt(holder.data()) : "it does not say which") +
                     "): wait for it, end it, or name another folder");
  }
  // Only for people: where it cannot be written, the lock holds all the same.
  const std::string holder = this_process();
  [[maybe_unused]] const bool written =
      ::ftruncate(descriptor_, 0) == 0 && ::pwrite(descriptor_, holder.data(), holder.size(), 0) > 0;
}

CheckpointLock::~CheckpointLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace runtime
