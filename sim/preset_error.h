// What reading a file throws.
#pragma once
#include <stdexcept>

namespace sim {

// The error of a wrong file: one sentence that names the file, the field and what would be accepted.
struct PresetError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace sim
