#include "runtime/attention_tile.h"

#include "kernels/attention_tile.h"

namespace runtime {

std::int64_t attention_tile() {
  static_assert(kernels::cpu::kQueryTile == kernels::cpu::kKeyTile);
  return kernels::cpu::kKeyTile;
}

}  // namespace runtime
