// Which code passes messages between ranks: measurements of collectives hold for this code and no other.
#pragma once
#include <string_view>

namespace runtime {

// A hash of its code without comments, written by the build.
std::string_view ranks_code();

}  // namespace runtime
