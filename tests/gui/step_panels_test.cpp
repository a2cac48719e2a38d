// The panels of a training step: pipeline and communication.
#include <implot.h>
#include <implot_internal.h>

#include <algorithm>
#include <array>
#include <map>
#include <regex>

#include "app/gui/legal.h"
#include "app/gui/panels/pipeline.h"
#include "app/gui/step_view.h"
#include "app/gui/widgets/numbers.h"
#include "sim/cost/calibration_preset.h"
#include "sim/cost/predict.h"
#include "sim/format.h"
#include "sim/plan/legality.h"
#include "sim/plan/schedule.h"
#include "tests/gui/null_desktop.h"
#include "tests/gui/panel_body.h"
#include "tests/support/catch.h"

using namespace app::gui;

namespace {

sim::Scenario pipelined(int stages, int micro_batches) {
  sim::Scenario s;
  s.model = sim::load_model_preset("llama-3.1-405b");
  s.hardware = sim::load_hardware_preset("h100-sxm");
  s.implementation = sim::load_implementation_preset("ridgepoint");
  s.strategy.tensor_parallel = 8;
  s.strategy.pipeline_parallel = stages;
  s.workload.seq_len = 4096;
  s.workload.global_batch_size = micro_batches;
  return s;
}

// A training that needs more memory than its devices have.
sim::Scenario too_large() {
  sim::Scenario s = sim::load_scenario_preset("train-llama-3.1-8b-h100");
  s.hardware = sim::load_hardware_preset("a100-sxm-40gb");
  s.strategy = {};
  s.strategy.data_parallel = 8;
  s.workload.micro_batch_size = 1;
  s.workload.global_batch_size = 64;
  return s;
}

// Places and colours of all that a frame draws.
std::vector<std::array<float, 3>> drawn_now() {
  std::vector<std::array<float, 3>> all;
  for (const ImDrawList* list : ImGui::GetDrawData()->CmdLists)
    for (const ImDrawVert& v : list->VtxBuffer) all.push_back({v.pos.x, v.pos.y, static_cast<float>(v.col)});
  return all;
}

}  // namespace

TEST_CASE("memory over time reaches the end of the step, as the pipeline does") {
  tests::NullDesktop desktop;
  REQUIRE(desktop.shell().commands().invoke("maximise.memory"));
  desktop.frames(4);
  const auto calibration = sim::load_calibration_preset("h100-sxm");
  REQUIRE(calibration);
  const double step = sim::predict(tests::small_scenario(), &*calibration).step_time.value;
  double end = 0, steps = 0;
  for (int i = 0; i < GImPlot->Plots.GetBufSize(); ++i) {
    const ImPlotPlot& plot = *GImPlot->Plots.GetByIndex(i);
    const std::string_view label = plot.XAxis(0).LabelOffset < 0 ? "" : plot.GetAxisLabel(plot.XAxis(0));
    if (!label.starts_with("time ")) continue;
    steps = label.starts_with("time from the start") ? 2 : 1;  // the first one before a later one
    end = plot.XAxis(0).Range.Max;
  }
  REQUIRE(steps > 0);
  CHECK(end * time_unit(steps * step).size == Approx(steps * step));
}

TEST_CASE("every panel draws every preset scenario") {
  std::vector<std::string> names = sim::preset_names(sim::PresetKind::scenario);
  // Those of this machine have no peaks here.
  std::erase_if(names, [](const std::string& name) { return name.ends_with("-here"); });
  REQUIRE(names.size() > 3);
  for (const std::string& name : names) {
    tests::NullDesktop desktop(sim::load_scenario_preset(name));
    desktop.settle();
    for (const PanelEntry* panel : panels()) {
      INFO(name << ", " << panel->id);
      REQUIRE(desktop.shell().commands().invoke(std::string("maximise.") + panel->id));
      desktop.frames(2);
      CHECK(GImGui->ErrorCountCurrentFrame == 0);
      desktop.shell().commands().invoke("view.restore");
    }
  }
}

TEST_CASE("a stage's slot at a time is the one that runs then, and its memory what was last written") {
  const sim::Scenario s = pipelined(4, 8);
  const StepView step = make_step_view(sim::make_plan(s), s.hardware, nullptr);
  REQUIRE(step.stages == 4);
  for (int stage = 0; stage < step.stages; ++stage)
    for (const sim::TimelineSlot& slot : step.slots_of(stage)) {
      CHECK(slot.stage == stage);
      const sim::Seconds middle{(slot.start.value + slot.end.value) / 2};
      const sim::TimelineSlot* found = step.slot_at(stage, middle);
      REQUIRE(found);
      CHECK(found == &slot);
    }
  CHECK(sim::total(step.memory_at(step.fullest_stage, step.peak_time)) == step.peak);
  // The last stage cannot begin before the first has passed something on.
  const auto first_forward = [&](int stage) {
    const auto slots = step.slots_of(stage);
    return *std::find_if(slots.begin(), slots.end(),
                         [](const sim::TimelineSlot& slot) { return slot.phase == sim::Phase::forward; });
  };
  CHECK(first_forward(0).end < first_forward(3).start);
  CHECK(step.slot_at(3, first_forward(0).end) == nullptr);
}

TEST_CASE("ranks of a group are a stride apart, inside a node while they fit") {
  sim::Hardware hardware = sim::load_hardware_preset("h100-sxm");
  const sim::Group tensor{sim::Axis::tensor, 8, 1}, data{sim::Axis::data, 4, 8}, both{sim::Axis::data, 4, 4};
  CHECK(first_of_group(tensor, 13) == 8);
  CHECK(first_of_group(data, 13) == 5);
  CHECK(first_of_group(data, 32 + 13) == 32 + 5);
  CHECK(place_of(tensor, hardware).nodes == 1);
  CHECK(place_of(tensor, hardware).link == hardware.node_link);
  CHECK(place_of(data, hardware).nodes == 4);
  CHECK(place_of(data, hardware).link == hardware.network_link);
  CHECK(place_of(both, hardware).ranks_per_node == 2);
  CHECK(place_of(both, hardware).link.value == 2 * hardware.network_link.value);
}

TEST_CASE("another schedule is one click, and one undo step") {
  tests::NullDesktop desktop(pipelined(4, 8));
  auto& document = desktop.shell().document();
  const sim::Scenario before = document.scenario();
  desktop.shell().commands().invoke("maximise.pipeline");
  desktop.settle();
  const ImGuiWindow* body = tests::body_of_maximised();
  REQUIRE(body);
  const auto& names = sim::kScheduleNames;
  const int interleaved =
      static_cast<int>(std::find(names.begin(), names.end(), "interleaved") - names.begin());
  ImGuiID id = ImHashStr("schedule", 0, body->ID);
  id = ImHashData(&interleaved, sizeof interleaved, id);
  id = ImHashStr("segment", 0, id);
  ImGui::SetWindowFocus("##maximised");
  desktop.frames(1);
  GImGui->NavActivateId = 0;
  ImGui::ActivateItemByID(id);
  desktop.frames(2);
  CHECK(document.scenario().strategy.schedule == "interleaved");
  CHECK(document.scenario().strategy.virtual_pipeline > 1);
  CHECK(std::string(document.undo_label()).find("schedule") == 0);
  document.undo();
  CHECK(document.scenario() == before);
}

TEST_CASE("a scenario that does not fit comes with single changes that save memory, on as many devices") {
  const sim::Scenario s = too_large();
  const Prediction prediction = make_prediction(s, nullptr, [] { return false; });
  REQUIRE(prediction.report);
  REQUIRE_FALSE(sim::fits(*prediction.report));
  REQUIRE_FALSE(prediction.fixes.empty());
  CHECK(prediction.fixes.front().fits);
  for (const sim::FitChange& fix : prediction.fixes) {
    INFO(fix.change);
    CHECK(sim::validate(fix.scenario).empty());
    CHECK(fix.scenario.strategy.devices() == 8);
    CHECK(fix.peak < sim::peak_memory(*prediction.report));
  }
  // What fits needs no such list.
  CHECK(make_prediction(tests::small_scenario(), nullptr, [] { return false; }).fixes.empty());
}

TEST_CASE("what would make a step fit is said as Undo says it once it is made") {
  const sim::Scenario s = too_large();
  tests::NullDesktop desktop(s);
  desktop.shell().view().maximised = "memory";
  desktop.settle();
  const Prediction prediction = make_prediction(s, nullptr, [] { return false; });
  const std::string words = desktop.words();
  CHECK_THAT(words, contains("ZeRO 0 \u2192 3"));
  int said = 0;
  for (const sim::FitChange& fix : prediction.fixes) {
    const std::string change = differences(s, fix.scenario);
    CAPTURE(fix.change, change);
    if (change.empty()) {  // Configure has no such field
      CHECK(fix.change == "implementation.master_weights false");
      CHECK_THAT(words, contains("no master weights"));
    } else {
      CHECK_THAT(words, contains(change));
      ++said;
    }
  }
  CHECK(said > 3);
  CHECK(desktop.shell().exported("memory", ExportFormat::markdown).find("ZeRO 0 \u2192 3") !=
        std::string::npos);
}

TEST_CASE("messages of an exchange whose sizes read alike are one circle with one name") {
  // Dispatched rows of experts carry a weight each, which rows on their way back do not.
  sim::Scenario s = sim::load_scenario_preset("train-llama-3.1-8b-8-h100");
  s.model = sim::load_model_preset("mixtral-8x7b");
  s.strategy = {};
  s.strategy.data_parallel = s.strategy.expert_parallel = 8;
  tests::NullDesktop desktop(s);
  desktop.shell().view().maximised = "communication";
  desktop.settle();
  const std::string words = desktop.words();
  REQUIRE_THAT(words, contains("expert, all-to-all"));
  const std::regex name("([0-9,]+) messages? of ([0-9.]+ [KMG]iB)");
  std::map<std::string, std::string> messages;
  for (auto at = std::sregex_iterator(words.begin(), words.end(), name); at != std::sregex_iterator(); ++at)
    CHECK(messages.emplace((*at)[2], (*at)[1]).second);
  REQUIRE(messages.size() == 1);
  std::int64_t all = 0;
  const Prediction prediction = make_prediction(s, nullptr, [] { return false; });
  for (const sim::MessageTraffic& t : prediction.step->traffic)
    if (t.kind == sim::OpKind::all_to_all) all += t.messages;
  CHECK(messages.begin()->second == sim::format_count(all));
}

TEST_CASE("all nodes of a large job are drawn where there is room for them") {
  tests::NullDesktop desktop(sim::load_scenario_preset("train-llama-3.1-405b-16384-h100"), {1920, 1200});
  desktop.shell().view().maximised = "communication";
  desktop.settle();
  CHECK(desktop.says("all 2,048 nodes of 8 ranks"));
}

TEST_CASE("bars of a timeline that are kept are those that would be merged anew") {
  tests::NullDesktop desktop(pipelined(4, 128), {640, 480});  // some are merged
  desktop.settle();
  desktop.shell().commands().invoke("maximise.pipeline");
  desktop.frames(4);
  auto& state = desktop.state<app::gui::PipelineState>();
  const auto merged_anew = [&] {
    state.stage_bars = {};
    desktop.frames(1);
    return drawn_now();
  };
  const auto kept = [&] {
    desktop.frames(3);
    return drawn_now();
  };
  const auto by_phase = kept();
  CHECK((by_phase == merged_anew()));
  state.coloring = app::gui::PipelineColoring::micro_batch;
  const auto by_micro_batch = kept();
  CHECK((by_micro_batch != by_phase));
  CHECK((by_micro_batch == merged_anew()));
  state.end /= 2;
  const auto half = kept();
  CHECK((half != by_micro_batch));
  CHECK((half == merged_anew()));
  sim::Scenario longer = pipelined(4, 64);
  desktop.shell().document().edit("more micro-batches", longer);
  desktop.settle();
  const auto other_step = kept();
  CHECK((other_step != half));
  CHECK((other_step == merged_anew()));
}

TEST_CASE("both plots of the pipeline share their time: the cursor follows the hand over either") {
  tests::NullDesktop desktop(pipelined(4, 8));
  desktop.shell().commands().invoke("maximise.pipeline");
  desktop.settle();
  const PipelineState& scope = desktop.state<PipelineState>();
  REQUIRE(scope.duration > 0);
  ImGuiIO& io = ImGui::GetIO();
  double cursor[2];
  const float heights[] = {300, 760};  // in the Gantt, in the memory below it
  for (int i = 0; i < 2; ++i) {
    io.AddMousePosEvent(700, heights[i]);
    desktop.frames(3);
    cursor[i] = scope.cursor;
  }
  CHECK(cursor[0] == Approx(cursor[1]));
  CHECK(cursor[0] > 0);
  CHECK(cursor[0] < scope.duration);
  // Zoomed in at the cursor, the same moment stays under the hand.
  io.AddMouseWheelEvent(0, 2);
  desktop.frames(3);
  CHECK(scope.end - scope.begin < scope.duration);
  CHECK(scope.cursor == Approx(cursor[0]).epsilon(0.01));
}

TEST_CASE("64 stages by 512 micro-batches draw no more than the screen has pixels for") {
  tests::NullDesktop desktop(pipelined(64, 512));
  desktop.settle();
  desktop.shell().commands().invoke("maximise.pipeline");
  desktop.frames(2);
  const StepView step =
      make_step_view(sim::make_plan(pipelined(64, 512)), sim::load_hardware_preset("h100-sxm"), nullptr);
  CHECK(step.slots.size() > 64 * 512 * 2);
  // Four vertices a bar, one bar for two pixels of each row, and as much again for everything else.
  const int bars = 64 * 1600 / 2;
  CHECK(ImGui::GetDrawData()->TotalVtxCount < 2 * 4 * bars);
  CHECK(GImGui->ErrorCountCurrentFrame == 0);
}
