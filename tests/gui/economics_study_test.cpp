// What the economics panel shows.
#include <cmath>

#include "app/gui/jobs/whole_run.h"
#include "app/gui/panels/cost_text.h"
#include "app/gui/panels/economics.h"
#include "app/gui/widgets/numbers.h"
#include "sim/cost/calibration_preset.h"
#include "sim/cost/predict.h"
#include "sim/economics/batch_size.h"
#include "sim/format.h"
#include "sim/report/metrics.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"

using namespace app::gui;

namespace {

EconomicsStudy study_of(const sim::Scenario& s) {
  EconomicsStudies studies;
  return studies.study({s, nullptr});
}

}  // namespace

TEST_CASE("a batch's step is the prediction's where it was predicted, and lies between its neighbours") {
  const sim::Scenario s = sim::load_scenario_preset("train-llama-3.1-8b-h100");
  const EconomicsStudy study = study_of(s);
  REQUIRE(study.batches.size() > 4);
  for (std::size_t i = 0; i < study.batches.size(); ++i) {
    const BatchStep& b = study.batches[i];
    CHECK(study.step(b.tokens).value == Approx(b.step.value));
    CHECK(study.devices(b.tokens) == Approx(b.devices));
    if (i == 0) continue;
    const BatchStep& before = study.batches[i - 1];
    CHECK(b.tokens == 2 * before.tokens);
    const double middle = study.step(std::sqrt(2.0) * before.tokens).value;
    CHECK(middle == Approx(std::sqrt(before.step.value * b.step.value)));
  }
  const double now = static_cast<double>(s.workload.global_batch_size * s.workload.seq_len);
  CHECK(study.step(now).value == Approx(sim::step_time(sim::predict(s)).value));
  CHECK(study.devices(now) == Approx(s.strategy.devices()));
}

TEST_CASE("generation has no batch of training, and published models all the same") {
  sim::Scenario s = tests::small_scenario();
  s.workload.task = sim::Task::generate;
  const EconomicsStudy study = study_of(s);
  CHECK(study.batches.empty());
  CHECK(study.published.size() == study.throughput.size());
}

TEST_CASE("of published models, smaller ones and those of 4 bits generate faster on as many devices") {
  const EconomicsStudy study = study_of(tests::small_scenario());
  const auto rate = [&](const char* preset) {
    for (const PublishedThroughput& t : study.throughput)
      if (study.published[t.model].preset == preset) return t;
    return PublishedThroughput{};
  };
  const auto in_16_bits = [&](const char* preset) { return rate(preset).bf16.tokens_per_second; };
  CHECK(rate("llama-2-7b").bf16.devices == 1);
  CHECK(in_16_bits("llama-2-7b") > in_16_bits("llama-2-13b"));
  CHECK(in_16_bits("llama-2-13b") > in_16_bits("llama-2-34b"));
  for (const PublishedThroughput& t : study.throughput)
    if (t.bf16.devices == 1 && t.bf16.tokens_per_second > 0)
      CHECK(t.int4.tokens_per_second > t.bf16.tokens_per_second);
  // 70 billion parameters of two bytes do not lie on one device of 80 GB; of half a byte they do.
  CHECK(rate("llama-2-70b").bf16.devices == 2);
  CHECK(rate("llama-2-70b").int4.devices == 1);
}

TEST_CASE("the economics panel draws at every size and scale, of training and of generation") {
  const sim::Task task = GENERATE(sim::Task::train, sim::Task::generate);
  const ImVec2 size = GENERATE(ImVec2{700, 500}, ImVec2{1280, 800}, ImVec2{2560, 1600});
  sim::Scenario s = sim::load_scenario_preset("train-llama-3.1-8b-h100");
  if (task == sim::Task::generate) {
    s.workload.task = task;
    s.strategy = {};
  }
  tests::NullDesktop desktop(s, size);
  if (size.x > 2000) desktop.shell().set_display_scale(2);
  desktop.shell().commands().invoke("maximise.economics");
  desktop.settle_studies();
  for (int tab = 0; tab < 6; ++tab) {
    for (const auto quality : {sim::QualityMeasure::commonsense, sim::QualityMeasure::mmlu}) {
      desktop.state<EconomicsState>().tab = tab;
      desktop.state<EconomicsState>().quality = quality;
      desktop.frames(2);
      CHECK(GImGui->ErrorCountCurrentFrame == 0);
    }
  }
  CHECK(ImGui::GetDrawData()->TotalVtxCount > 500);
}

TEST_CASE("Economics fills a panel of 965 by 575 points with four parts, and has the others by a tab") {
  tests::NullDesktop desktop(sim::load_scenario_preset("train-llama-3.1-8b-8-h100"), {965 + 16, 575 + 16});
  desktop.shell().commands().invoke("maximise.economics");
  desktop.settle_studies();
  const std::array<const char*, 4> first = {"The whole run", "Failures", "Batch size",
                                            "Model size for the same loss"};
  for (const char* title : first) CHECK(desktop.says(title));
  CHECK_FALSE(desktop.says("Generation against quality"));
  float most_x = 0, most_y = 0;
  for (const ImGuiWindow* window : GImGui->Windows)
    if (window->WasActive && std::string_view(window->Name).find("/part_") != std::string_view::npos) {
      most_x = std::max(most_x, window->Pos.x + window->Size.x);
      most_y = std::max(most_y, window->Pos.y + window->Size.y);
    }
  for (const ImGuiWindow* window : GImGui->Windows)  // nothing in a part has to be scrolled to
    if (window->WasActive && std::string_view(window->Name).find("/part_") != std::string_view::npos)
      CHECK(window->ScrollMax.y == 0);
  CHECK(most_x > 940);
  CHECK(most_y > 550);
  desktop.state<EconomicsState>().tab = 5;
  desktop.settle_studies();
  CHECK(desktop.says("Training against quality"));
  CHECK(desktop.says("Generation against quality"));
  for (const char* title : first) CHECK_FALSE(desktop.says(title));
}

TEST_CASE("Overview's days, money, energy and carbon are those that Economics begins with") {
  sim::Scenario s = sim::load_scenario_preset("train-llama-3.1-8b-8-h100");
  tests::NullDesktop desktop(s, {1920, 1080});
  desktop.settle();
  const auto calibration = sim::load_calibration_preset("h100-sxm");
  const auto run = app::gui::whole_run(sim::predict(s, calibration ? &*calibration : nullptr));
  REQUIRE(run);
  CHECK(run->is_priced);
  CHECK(run->is_powered);
  sim::Scenario dark = s;
  dark.hardware.power_w = 0;
  CHECK_FALSE(app::gui::whole_run(sim::predict(dark))->is_powered);
  // Compute-optimal: 20 tokens a parameter (Hoffmann et al. 2022).
  CHECK(run->tokens / static_cast<double>(sim::count_parameters(s.model).total) == Approx(20).epsilon(0.01));
  const std::string money = "$" + sim::format_count(std::llround(run->cost.usd));
  for (const char* panel : {"economics", "overview"}) {
    desktop.shell().view().maximised = panel;
    desktop.settle_studies();
    CAPTURE(panel);
    for (const std::string& words :
         {money, energy_text(run->cost), carbon_text(run->cost), days_text(run->cost.days).substr(0, 4)})
      CHECK(desktop.says(words));
  }
}

TEST_CASE("a million generated tokens stand on Overview with their money and energy") {
  tests::NullDesktop desktop(sim::load_scenario_preset("chat-llama-3.1-8b-h100"), {1920, 1080});
  desktop.shell().view().maximised = "overview";
  desktop.settle();
  CHECK(desktop.says("A million tokens"));
  CHECK(desktop.says("kWh"));
}
