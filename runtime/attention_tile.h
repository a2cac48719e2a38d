// How the CPU's flash attention cuts a sequence, for who explains it.
#pragma once
#include <cstdint>

namespace runtime {

// Queries, and keys, of one tile.
std::int64_t attention_tile();

}  // namespace runtime
