// An inference engine's profile to and from JSON values. Included by .cpp files only.
#pragma once
#include "sim/json_object.h"
#include "sim/scenario/serving_implementation.h"

namespace sim {

ServingImplementation serving_implementation_from(JsonObject object);  // refuses unknown fields
Json json_of(const ServingImplementation& serving);

}  // namespace sim
