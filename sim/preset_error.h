// What reading a file throws.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

namespace sim {

// The error of a wrong file: one sentence that names the file, the field and what would be accepted.
struct PresetError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Of one field: `wrong` is the sentence behind its name.
struct FieldError : PresetError {
  FieldError(const std::string& file, std::string name, std::string what_is_wrong)
      : PresetError(file + ": field \"" + name + "\" " + what_is_wrong),
        field(std::move(name)),
        wrong(std::move(what_is_wrong)) {}
  std::string field, wrong;
};

}  // namespace sim
