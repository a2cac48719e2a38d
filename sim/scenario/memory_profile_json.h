// Memory profiles to and from JSON values. Included by .cpp files only.
#pragma once
#include "sim/json_object.h"
#include "sim/scenario/memory_profile.h"

namespace sim {

// Refuses unknown fields.
MemoryProfile memory_profile_from(JsonObject object);
Json json_of(const MemoryProfile& profile);

}  // namespace sim
