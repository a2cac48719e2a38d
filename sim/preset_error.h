// What reading a file throws.
#pragma once
#include <stdexcept>

namespace sim {

// A file that is not what it should be: one sentence that names file, field and what would be accepted.
struct PresetError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace sim
