// The parts of a scenario to and from JSON values. Included by .cpp files only.
#pragma once
#include "sim/json_object.h"
#include "sim/scenario/preset.h"
#include "sim/scenario/scenario.h"

namespace sim {

// Each function refuses unknown fields. `name` is the part's name where the object does not give one.
Model model_from(JsonObject object, const std::string& name);
Hardware hardware_from(JsonObject object, const std::string& name);
Implementation implementation_from(JsonObject object, const std::string& name);
Workload workload_from(JsonObject object);
Strategy strategy_from(JsonObject object);
Scenario scenario_from(JsonObject object);
SeriesSet series_from(JsonObject object);

Json json_of(const Model& model);
Json json_of(const Hardware& hardware);
Json json_of(const Implementation& implementation);
Json json_of(const Workload& workload);
Json json_of(const Strategy& strategy);
Json json_of(const Scenario& scenario);

// The object with the fields of the preset that it "extends" below its own, through any number of presets.
Json with_base(PresetKind kind, const Json& object, const std::string& file);

}  // namespace sim
