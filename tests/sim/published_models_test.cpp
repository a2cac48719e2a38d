// Published models: hours of training and quality, each with its source.
#include "sim/economics/published_models.h"

#include <set>

#include "sim/scenario/preset.h"
#include "tests/support/catch.h"

using namespace sim;

namespace {

constexpr const char* kHeader =
    "model,preset,family,gpu,gpu_hours,commonsense,mmlu,hours_source,quality_source\n";

}  // namespace

TEST_CASE("every published model has a preset of its shape, a quality and the sources of both figures") {
  const std::vector<PublishedModel> models = load_published_models();
  REQUIRE(models.size() > 10);
  const auto presets = preset_names(PresetKind::model);
  const std::set<std::string> known(presets.begin(), presets.end());
  std::set<std::string> names;
  for (const PublishedModel& model : models) {
    INFO(model.name);
    CHECK(known.count(model.preset) == 1);
    CHECK(names.insert(model.name).second);
    CHECK((model.commonsense || model.mmlu));
    CHECK_FALSE(model.quality_source.empty());
    CHECK(model.gpu_hours.has_value() == !model.hours_source.empty());
    CHECK(model.gpu_hours.has_value() == !model.gpu.empty());
  }
}

// Llama 2's family of 7, 13, 34 and 70 billion parameters took 3.3 million GPU hours (Touvron et al. 2023,
// arXiv 2307.09288, section 2.2.1).
TEST_CASE("Llama 2's hours add up to what its paper says") {
  double hours = 0;
  for (const PublishedModel& model : load_published_models())
    if (model.family == "Llama 2") hours += *model.gpu_hours;
  CHECK(hours == Approx(3.3e6).epsilon(0.01));
}

TEST_CASE("a table of published models that cannot be is refused by line and column") {
  const auto read = [](const std::string& rows) {
    return published_models_from_csv(kHeader + rows, "quality.csv");
  };
  CHECK(read("A,a,F,,,60,,,paper\n").size() == 1);
  CHECK_THROWS_WITH(read("A,a,F,,,60,120,,paper\n"), contains("quality.csv line 2: mmlu"));
  CHECK_THROWS_WITH(read("A,a,F,,,60,,,paper\nB,b,F,G,x,60,,s,paper\n"), contains("line 3: gpu_hours"));
  CHECK_THROWS_WITH(read("A,a,F,G,100,60,,,paper\n"), contains("hours_source is empty"));
  CHECK_THROWS_WITH(published_models_from_csv("a,b\n1,2\n", "quality.csv"),
                    contains("the columns must be model,preset"));
}
