// The two ways in which a user's file can stop a run. Each carries one sentence that names the file, the field or
// tensor, and what would be accepted; app/ prints it and ends with exit code 4.
#pragma once

#include <stdexcept>

namespace runtime {

// A file that is read is malformed, or lacks what is needed.
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A file that is written could not be (full disk, missing folder, no permission). What stood there before still does.
struct OutputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace runtime
