// Start's places: the devices that doctor lists, and recordings. Drivers are stand-ins
// (tests/support/fake_nvml.cpp); the GPU's own sources run on emulated threads.
#include "app/cli/device_list.h"
#include "app/gui/jobs/child_process.h"
#include "app/gui/jobs/start_places.h"
#include "app/gui/panels/pipeline.h"
#include "app/gui/start_menu.h"
#include "programs.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/cache_folder.h"
#include "tests/support/catch.h"
#include "tests/support/known_machine.h"
#include "tests/support/temporary_folder.h"

using tests::NullDesktop;

namespace {

// The environment of the programs that are started while it lives.
class Environment {
 public:
  explicit Environment(const char* backend) {
    setenv("RIDGEPOINT_NVML", RIDGEPOINT_FAKE_NVML, 1);
    setenv("RIDGEPOINT_CUDA_BACKEND", backend, 1);
  }
  ~Environment() {
    unsetenv("RIDGEPOINT_NVML");
    unsetenv("RIDGEPOINT_CUDA_BACKEND");
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  CacheFolder cache_;
};

sim::Scenario tiny() {
  sim::Scenario s = tests::small_scenario();
  s.model = sim::load_model_preset("tiny-llama");
  s.workload.seq_len = 16;
  s.workload.micro_batch_size = s.workload.global_batch_size = 1;
  return s;
}

std::vector<runtime::MachineDevice> devices_of_doctor() {
  std::string json;
  app::gui::run_to_end(
      {RIDGEPOINT_PROGRAM, "doctor", "--devices", "--format", "json"},
      [&](std::string_view line) { json += line; }, [] { return false; });
  return app::cli::devices_from_json(json);
}

// Moves along the top bar from the right until what is under the pointer says so.
bool point_at(NullDesktop& desktop, const char* tooltip) {
  for (float x = 1590; x > 1000; x -= 12) {
    ImGui::GetIO().AddMousePosEvent(x, 22);
    desktop.frames(40);
    if (desktop.says(tooltip)) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a GPU that the driver sees and no run can be on stands at Start with what is missing") {
  const Environment environment("/nowhere/libridgepoint_cuda.so");
  NullDesktop desktop(tiny(), {1600, 1000}, {}, RIDGEPOINT_PROGRAM);
  desktop.settle_studies();
  const std::vector<runtime::MachineDevice> devices = devices_of_doctor();
  REQUIRE(devices.size() == 2);
  CHECK(devices[1].name == "NVIDIA H100 80GB HBM3");
  CHECK_THAT(devices[1].missing, contains("built without the CUDA backend"));
  CHECK(devices == desktop.shell().places().devices);
  CHECK_FALSE(desktop.says("built without the CUDA backend"));
  REQUIRE(point_at(desktop, "Where to run"));
  desktop.click(ImGui::GetIO().MousePos);
  const std::string words = desktop.words();
  CHECK_THAT(words, contains("NVIDIA H100 80GB HBM3"));
  CHECK_THAT(words, contains("built without the CUDA backend"));
  CHECK_THAT(words, contains(devices[0].name));
}

#ifdef RIDGEPOINT_EMULATED_CUDA
namespace {

// As a hand does it: the palette, words, Enter.
void choose(NullDesktop& desktop, const char* words) {
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_K);
  desktop.type(words);
  desktop.press(ImGuiKey_Enter);
}

std::vector<std::pair<double, double>> pairs(const app::gui::Series& series) {
  std::vector<std::pair<double, double>> all;
  for (const app::gui::Point& point : series.points()) all.emplace_back(point.x, point.y);
  return all;
}

const app::gui::RunView& run_to_its_end(NullDesktop& desktop) {
  app::gui::Runs& runs = desktop.shell().runs();
  while (runs.active()) desktop.frame();
  desktop.frame();
  return runs.of(sim::Task::train);
}

}  // namespace

TEST_CASE(
    "Start offers every device that doctor lists in its types, and the run is on the one that is chosen") {
  const Environment environment(RIDGEPOINT_EMULATED_CUDA);
  NullDesktop desktop(tiny(), {1600, 1000}, {}, RIDGEPOINT_PROGRAM);
  desktop.settle_studies();
  const std::vector<runtime::MachineDevice> devices = devices_of_doctor();
  REQUIRE(devices.size() > 1);
  CHECK(devices == desktop.shell().places().devices);
  for (const runtime::MachineDevice& device : devices)
    for (const sim::DType dtype : device.dtypes) {
      CAPTURE(device.flag, sim::name(dtype));
      CHECK(desktop.shell().commands().find(app::gui::place_command(device.flag, dtype)));
    }
  choose(desktop, "run on emulated fp16");
  const app::gui::RunPlace& place = desktop.shell().runs().choices.place;
  CHECK(place.device == "cuda:0");
  CHECK(place.dtype == sim::DType::fp16);
  desktop.settle_studies();
  REQUIRE(is_enabled(*desktop.shell().commands().find("run.start")));
  desktop.shell().runs().choices.steps = 3;
  desktop.press(ImGuiKey_F5);
  const app::gui::RunView& run = run_to_its_end(desktop);
  CAPTURE(run.message);
  REQUIRE(run.phase == app::gui::RunPhase::ended);
  CHECK_THAT(run.measured->source.device, contains("emulated"));
  CHECK(run.measured->source.scenario.workload.dtype == sim::DType::fp16);
  CHECK(run.loss.size() == 3);
  CHECK(run.predicted);
}

TEST_CASE("a recording plays at Start as the run that it is of, event by event into the same panels") {
  const TemporaryFolder folder;
  const Environment environment(RIDGEPOINT_EMULATED_CUDA);
  const std::filesystem::path file = folder.path() / "run.ndjson";
  app::gui::RunState direct(sim::Task::train, [](const sim::Source&) { return nullptr; });
  app::gui::run_to_end(
      {RIDGEPOINT_PROGRAM, "train", "--device", "cuda", "--model", "tiny-llama", "--seq-len", "16",
       "--micro-batch", "1", "--steps", "4", "--stream", "--record", file.string()},
      [&](std::string_view line) { direct.line(line); }, [] { return false; });
  direct.ended(0, "");
  const auto expected = direct.view();
  REQUIRE(expected->loss.size() == 4);

  NullDesktop desktop(tests::small_scenario(), {1600, 1000}, {}, RIDGEPOINT_PROGRAM);
  desktop.shell().open(file);
  desktop.settle_studies();
  REQUIRE(desktop.shell().places().recordings.size() >= 1);
  choose(desktop, "play train tiny-llama emulated");
  const app::gui::RunView& run = run_to_its_end(desktop);
  CAPTURE(run.message);
  REQUIRE(run.phase == app::gui::RunPhase::ended);
  CHECK_THAT(run.title, contains("recorded"));
  CHECK(pairs(run.loss) == pairs(expected->loss));
  CHECK(pairs(run.tokens_per_second) == pairs(expected->tokens_per_second));
  sim::Report measured = *run.measured;
  CHECK(measured.source.kind == sim::ReportKind::recorded);
  measured.source.kind = sim::ReportKind::measured;
  CHECK(sim::to_json(measured) == sim::to_json(*expected->measured));
  CHECK(run.predicted);
  // Its scenario is the document's: every panel has measured beside predicted.
  CHECK(desktop.shell().document().scenario() == run.measured->source.scenario);
}
#endif

TEST_CASE(
    "ranks that Start runs are tracks beneath the predicted stages while they train, on the prediction's "
    "axis") {
  const CacheFolder cache;
  tests::keep_known_machine();
  NullDesktop desktop(tiny(), {1600, 1000}, {}, RIDGEPOINT_PROGRAM);
  sim::Scenario s = tiny();
  s.workload.global_batch_size = 8;
  s.strategy.tensor_parallel = s.strategy.pipeline_parallel = s.strategy.data_parallel = 2;
  s.hardware.devices_per_node = 8;
  desktop.shell().document().edit("2 x 2 x 2", s);
  desktop.shell().commands().invoke("maximise.pipeline");
  desktop.settle_studies();
  REQUIRE(is_enabled(*desktop.shell().commands().find("run.start")));
  desktop.shell().runs().choices.steps = 100000;
  desktop.press(ImGuiKey_F5);
  app::gui::Runs& runs = desktop.shell().runs();
  std::int64_t first = 0;
  while (runs.active()) {
    desktop.frame();
    const auto& tracks = runs.of(sim::Task::train).tracks;
    if (!tracks) continue;
    if (first == 0) first = tracks->step;
    if (tracks->step > first) break;  // live: a later step came in place of the first
  }
  const app::gui::RunView run = runs.of(sim::Task::train);
  CAPTURE(run.message);
  REQUIRE(runs.active());
  REQUIRE(run.tracks->of_rank.size() == 8);
  for (std::size_t rank = 0; rank < 8; ++rank) {
    const auto& slots = run.tracks->of_rank[rank];
    CAPTURE(rank);
    std::int64_t forward = 0, backward = 0;
    bool in_order = true;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      forward += slots[i].phase == sim::Phase::forward ? 1 : 0;
      backward += slots[i].phase == sim::Phase::backward ? 1 : 0;
      in_order = in_order && slots[i].end >= slots[i].start && (i == 0 || slots[i].start >= slots[i - 1].end);
      CHECK(slots[i].stage == slots.front().stage);
    }
    CHECK(in_order);
    CHECK(forward == 4);  // micro-batches of a data-parallel rank
    CHECK(backward == 4);
  }
  const std::string words = desktop.words();
  CHECK_THAT(words, contains("Measured, step "));
  CHECK_THAT(words, contains("8 ranks on "));
  CHECK(desktop.state<app::gui::PipelineState>().duration >= run.tracks->duration.value);
  desktop.press(ImGuiMod_Shift | ImGuiKey_F5);
  while (runs.active()) desktop.frame();
}
