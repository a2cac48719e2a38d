// Errors that a person can do something about. Each carries one sentence that names the file or device, the
// field, and what would be accepted; app/ maps the type to the exit code.
#pragma once
#include <stdexcept>

namespace runtime {

struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};  // exit 4: a file or its content
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};  // exit 6: device failed, out of memory, disk full
struct DoesNotFit : std::runtime_error {
  using std::runtime_error::runtime_error;
};  // exit 3: refused before it starts
struct NoDevice : std::runtime_error {
  using std::runtime_error::runtime_error;
};  // exit 5

}  // namespace runtime
