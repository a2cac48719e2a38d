// Which implementation preset a table's framework means, at the age of its row.
#pragma once
#include <string>
#include <string_view>

namespace sim {

struct StackOfRow {
  std::string preset;
  bool nearest = false;  // no profile is of this software: the one most like it
};

// `framework` and `notes` are free text, `date` begins with the year ("2024-12"), `gpu` is free text.
StackOfRow stack_of(std::string_view framework, std::string_view date, std::string_view notes,
                    std::string_view source = {});

}  // namespace sim
