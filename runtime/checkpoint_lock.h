// One run at a time keeps its checkpoints in a folder: two would write over each other's.
#pragma once
#include <filesystem>

namespace runtime {

// Holds DIRECTORY/lock as long as it lives. The system frees it when the process ends, however that is, so a
// lock is never left behind; the file stays, and says which process held it last. A folder that does not
// exist is not locked.
class CheckpointLock {
 public:
  // Throws InputError, naming the process that holds it, and DeviceError where the folder cannot be written.
  explicit CheckpointLock(const std::filesystem::path& directory);
  CheckpointLock(const CheckpointLock&) = delete;
  CheckpointLock& operator=(const CheckpointLock&) = delete;
  ~CheckpointLock();

 private:
  int descriptor_ = -1;
};

}  // namespace runtime
