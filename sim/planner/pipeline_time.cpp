#include "sim/planner/pipeline_time.h"

#include <algorithm>
#include <array>
#include <utility>

namespace sim {

namespace {

std::size_t place(PassTime ChunkPasses::*pass) {
  return static_cast<std::size_t>(std::find(kPasses.begin(), kPasses.end(), pass) - kPasses.begin());
}

}  // namespace

std::vector<UnitStep>& ChunkSteps::of(PassTime ChunkPasses::*pass) {
  return passes[place(pass)];
}
const std::vector<UnitStep>& ChunkSteps::of(PassTime ChunkPasses::*pass) const {
  return passes[place(pass)];
}

}  // namespace sim
