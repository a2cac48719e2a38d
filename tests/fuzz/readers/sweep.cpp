// The file of a sweep.
// Read by: app/cli/plan_sweep.cpp
#include <fmt/format.h>

#include "app/cli/plan_sweep.h"
#include "tests/fuzz/fuzz.h"

namespace {

// Four fields of 18 values: 104,976 variations, more than a sweep may have.
std::string too_large() {
  std::string values = "1";
  for (int value = 2; value <= 18; ++value) values += fmt::format(",{}", value);
  return R"({"schema_version":1,"vary":{"gpus":[)" + values + R"(],"tp":[)" + values + R"(],"pp":[)" +
         values + R"(],"dp":[)" + values + "]}}";
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  return {
      too_large(), R"({"schema_version":1,"vary":{"seq-len":["4k",8192],"gpus":[8,64],"zero":[0,1,2,3]}})",
      R"({"schema_version":1,"vary":{"model":["llama-2-7b","mixtral-8x7b"],"sequence-parallel":[true,false]}})"};
}

void fuzz::read(std::string_view input) {
  const auto variations = app::cli::read_sweep(fuzz::file("sweep.json", input).string());
  require(!variations.empty() && variations.size() <= 100'000, "a sweep has one to 100,000 variations");
  for (const app::cli::Variation& variation : variations) {
    require(variation.size() == variations.front().size(), "all variations give the same fields");
    app::cli::text_of(variation);
  }
}
