#include "sim/plan/neighbours.h"

#include <string_view>
#include <unordered_map>

namespace sim {

std::vector<std::vector<bool>> always_followed(const Plan& plan) {
  struct Before {
    std::string_view id;  // empty: it begins its block
    bool always = true;
  };
  std::unordered_map<std::string_view, Before> before;
  for (const Block& block : plan.blocks)
    for (std::size_t o = 0; o < block.operations.size(); ++o) {
      const std::string_view id = o > 0 ? std::string_view(block.operations[o - 1].id) : std::string_view();
      const auto [place, is_new] = before.try_emplace(block.operations[o].id, Before{id});
      if (!is_new && place->second.id != id) place->second.always = false;
    }
  std::vector<std::vector<bool>> followed;
  for (const Block& block : plan.blocks) {
    std::vector<bool>& of_block = followed.emplace_back(block.operations.size(), false);
    for (std::size_t o = 0; o + 1 < block.operations.size(); ++o)
      of_block[o] = before.at(block.operations[o + 1].id).always;
  }
  return followed;
}

}  // namespace sim
