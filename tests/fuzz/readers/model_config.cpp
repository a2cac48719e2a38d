// Hugging Face's config.json.
// Read by: sim/scenario/hugging_face_config.cpp sim/scenario/hugging_face_families.cpp
#include "sim/plan/legality.h"
#include "sim/scenario/model.h"
#include "sim/scenario/preset.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  return files_of("tests/parity/fixtures", "config.json");
}

void fuzz::read(std::string_view input) {
  const sim::Model model = sim::model_from_hugging_face_config(input, kFile);
  const std::string written = sim::to_json(model);
  require_same(sim::to_json(sim::model_from_json(written, kFile)), written,
               "a model is written as it is read");
  sim::validate(model);
}
