// From a number on screen to the measurements that it rests on.
#include "app/gui/panels/calibrate.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "app/cli/scenario_flags.h"
#include "app/gui/panels/roofline.h"
#include "runtime/begun_calibration.h"
#include "runtime/calibrate.h"
#include "runtime/machine_files.h"
#include "sim/cost/calibration_preset.h"
#include "sim/cost/predict.h"
#include "sim/format.h"
#include "sim/report/metrics.h"
#include "tests/gui/drawn_text.h"
#include "tests/gui/null_desktop.h"
#include "tests/gui/panel_body.h"
#include "tests/support/cache_folder.h"
#include "tests/support/catch.h"
#include "tests/support/known_machine.h"

using namespace app::gui;
using tests::NullDesktop;

TEST_CASE("Calibrate lists each preset's fits with their errors, and those of a chip with other links too") {
  const std::string hardware = GENERATE("h100-sxm", "a100-sxm-80gb", "gh200", "v100-sxm");
  NullDesktop desktop;
  desktop.shell().view().maximised = "calibrate";
  desktop.state<CalibrateState>().hardware = hardware;
  desktop.settle_studies();
  CAPTURE(hardware);
  const std::vector<sim::FittedRows> fits = sim::published_fits(hardware);
  if (fits.empty()) {
    CHECK(desktop.says("Nothing was measured of " + hardware));
    return;
  }
  CHECK(desktop.says(fits.front().what));
  CHECK(desktop.says(fits.front().software));
  const std::string csv = desktop.shell().exported("calibrate", ExportFormat::csv);
  for (const sim::FittedRows& fit : fits) CHECK_THAT(csv, contains(fit.what.substr(0, fit.what.find(','))));
}

TEST_CASE(
    "a click on an operation leads to its table: Explain offers Calibrate, which names rows and source") {
  sim::Scenario scenario = tests::small_scenario();
  scenario.workload.dtype = sim::DType::bf16;
  NullDesktop desktop(scenario, {1920, 1080});
  desktop.settle();
  CHECK(desktop.says("Formulas and constants"));
  desktop.shell().view().selection = {Quantity::operation, 0, "forward layer.mlp.up.forward"};
  desktop.frames(3);
  CHECK(desktop.says("Where it was measured"));
  desktop.shell().view().maximised = "calibrate";
  desktop.settle_studies();
  desktop.settle_studies();
  CHECK(desktop.says("matmul, bf16"));
  CHECK(desktop.says("8,866 rows"));
  CHECK(desktop.says("aiconfigurator"));
  // The longest shape, and the tables of its kernel alone.
  desktop.shell().view().selection.operation = "backward layer.attention.flash.backward";
  desktop.settle_studies();
  desktop.settle_studies();
  CHECK(desktop.says("attention_backward, bf16"));
  const auto& trace = *desktop.state<CalibrateState>().trace.result();
  REQUIRE(trace);
  for (const sim::FittedRows& table : trace->tables) {
    CAPTURE(table.what);
    CHECK(table.what.find("backward") != std::string::npos);
  }
  for (const std::string& problem : tests::unreadable_text()) FAIL_CHECK(problem);
}

TEST_CASE("Methodology has a source for every formula and constant, each formula a panel to see it at work") {
  NullDesktop desktop(tests::small_scenario(), {1920, 1400});
  desktop.shell().view().maximised = "methodology";
  desktop.settle();
  for (const PanelFigures& panel : desktop.shell().figures("methodology"))
    for (const Figure& figure : panel.figures) {
      const auto& table = std::get<FigureTable>(figure.data);
      CHECK(table.rows.size() > 10);
      for (const auto& row : table.rows) {
        const auto& source = std::get<std::string>(row.back());
        CAPTURE(std::get<std::string>(row.front()));
        CHECK_FALSE(source.empty());
      }
    }
  CHECK(GImGui->ErrorCountCurrentFrame == 0);
  for (const std::string& problem : tests::unreadable_text()) FAIL_CHECK(problem);
}

TEST_CASE("Methodology says the source of constants whole, once for all of one thing that have it") {
  const ImVec2 size = GENERATE(ImVec2{900, 2400}, ImVec2{1280, 2400}, ImVec2{2560, 1440});
  NullDesktop desktop(sim::load_scenario_preset("train-llama-3.1-8b-8-h100"), size);
  Shell& shell = desktop.shell();
  shell.view().maximised = "methodology";
  desktop.settle();
  const std::string heading = "Constants of this scenario";
  if (!desktop.says(heading)) {  // where they are a page of their own
    const ImGuiWindow* body = tests::body_of_maximised();
    REQUIRE(body);
    for (float x = body->Pos.x; !desktop.says(heading) && x < body->Pos.x + 300; x += 20)
      desktop.click({x, body->Pos.y + 12});
  }
  const std::string words = desktop.words();
  REQUIRE_THAT(words, contains(heading));
  std::map<std::pair<std::string, std::string>, int> sources;  // of a thing
  const std::vector<PanelFigures> panels = shell.figures("methodology");
  for (const Figure& figure : panels.front().figures)
    if (figure.title == heading)
      for (const auto& row : std::get<FigureTable>(figure.data).rows) {
        const auto& constant = std::get<std::string>(row.front());
        ++sources[{constant.substr(0, constant.find(": ")), std::get<std::string>(row.back())}];
      }
  REQUIRE(sources.size() > 3);
  std::map<std::string, int> things;
  for (const auto& [source, constants] : sources) ++things[source.second];
  for (const auto& [source, times] : things) {
    CAPTURE(source);
    int said = 0;
    const std::string line = "Source: " + source;
    for (auto at = words.find(line); at != std::string::npos; at = words.find(line, at + 1)) ++said;
    CHECK(said == times);
  }
  for (const std::string& problem : tests::unreadable_text()) FAIL_CHECK(problem);
}

TEST_CASE("Roofline draws the roofs of caches and host, and a second device's beside them") {
  NullDesktop desktop(tests::small_scenario(), {1600, 1000});
  Shell& shell = desktop.shell();
  shell.view().maximised = "roofline";
  desktop.state<RooflineState>().second = "a100-sxm-80gb";
  desktop.settle_studies();
  const std::string words = desktop.words();
  for (const char* name : {"shared memory", "L2", "host link", "a100-sxm-80gb"})
    CHECK_THAT(words, contains(name));
  for (const std::string& problem : tests::unreadable_text()) FAIL_CHECK(problem);
  const std::string csv = shell.exported("roofline", ExportFormat::csv);
  CHECK_THAT(csv, contains("L2") && contains("roof, a100-sxm-80gb"));
  // The same operations, as the scenario is predicted there.
  sim::Scenario there = tests::small_scenario();
  there.hardware = sim::load_hardware_preset("a100-sxm-80gb");
  const auto calibration = sim::load_calibration_preset("a100-sxm-80gb");
  const sim::Report report = sim::predict(there, calibration ? &*calibration : nullptr);
  const std::vector<PanelFigures> panels = shell.figures("roofline");
  const auto& plot = std::get<FigurePlot>(panels.front().figures.front().data);
  const auto dots = std::find_if(plot.curves.begin(), plot.curves.end(),
                                 [](const FigureCurve& curve) { return curve.name == "on a100-sxm-80gb"; });
  REQUIRE(dots != plot.curves.end());
  std::size_t found = 0;
  for (const sim::Row& row : report.rows)
    for (std::size_t i = 0; i < dots->names.size(); ++i)
      if (row.rank == 0 && dots->names[i] == std::string(sim::name(row.phase)) + " " + row.id) {
        CHECK(dots->points[i].y == Approx((row.flops / row.duration).value));
        ++found;
      }
  CHECK(found == dots->points.size());
  CHECK(found > 10);
  desktop.state<RooflineState>().shows_levels = false;
  desktop.state<RooflineState>().second.clear();
  CHECK_THAT(shell.exported("roofline", ExportFormat::csv), !contains("shared memory"));
}

TEST_CASE(
    "a measurement leaves a scenario on another machine as it is, those on this one know it when shown") {
  const CacheFolder cache;
  const TemporaryFolder folder;
  // Measures at once.
  const std::filesystem::path program = folder.write("ridgepoint", "#!/bin/sh\nexit 0\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  NullDesktop desktop(tests::small_scenario(), {1600, 1000}, {}, program.string());
  Shell& shell = desktop.shell();
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_T);
  REQUIRE(shell.commands().invoke("hardware.this-machine"));
  desktop.settle();
  REQUIRE(shell.document().scenario().hardware.peak.empty());
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_1);
  const sim::Calibration here = tests::keep_known_machine();
  REQUIRE(shell.commands().invoke("run.calibrate"));
  desktop.settle_studies();
  CHECK(shell.document().scenario() == tests::small_scenario());
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_2);
  desktop.settle();
  CHECK(shell.document().scenario().hardware.peak == here.hardware.peak);
  shell.view().maximised = "calibrate";
  desktop.settle_studies();
  CHECK(desktop.says("Measure again"));
}

TEST_CASE("a measurement is stopped where it was begun, and one that was stopped is gone on with") {
  const CacheFolder cache;
  const TemporaryFolder folder;
  // Measures until it is stopped; then what was timed is kept.
  const sim::Calibration here = tests::keep_known_machine();
  sim::Calibration begun = here;
  begun.samples.clear();
  const std::string kept = folder.write("kept.json", runtime::to_json({begun, runtime::TimedPieces()}));
  const std::string begun_file =
      (runtime::this_machine_file().parent_path() / "this-machine-begun.json").string();
  const std::filesystem::path program =
      folder.write("ridgepoint", "#!/bin/sh\n[ \"$1\" = calibrate ] || exit 0\ntrap 'cp " + kept + " " +
                                     begun_file + "; exit 130' TERM\nsleep 60 & wait\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  NullDesktop desktop(tests::small_scenario(), {1600, 1000}, {}, program.string());
  REQUIRE(desktop.shell().commands().invoke("hardware.this-machine"));
  desktop.shell().view().maximised = "calibrate";
  desktop.settle();
  CHECK(desktop.says("Measure again"));
  REQUIRE(desktop.shell().commands().invoke("run.calibrate"));
  desktop.frames(5);
  CHECK(desktop.says("Stop"));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until the shell has set its trap
  desktop.state<CalibrateState>().calibrations.stop();
  desktop.settle_studies();
  CHECK(runtime::this_machine_is_begun());
  desktop.frames(31);
  CHECK(desktop.says("Go on measuring"));
}

TEST_CASE(
    "a machine that a run or another process has measured is known within half a second, and when it is "
    "measured anew") {
  const CacheFolder cache;
  sim::Scenario scenario = tests::small_scenario();
  scenario.workload.dtype = sim::DType::fp32;
  NullDesktop desktop(scenario);
  Shell& shell = desktop.shell();
  REQUIRE(shell.commands().invoke("hardware.this-machine"));
  desktop.settle();
  REQUIRE(shell.document().scenario().hardware.peak.empty());
  const auto look = [&] {
    desktop.frames(31);
    desktop.settle();
  };
  sim::Calibration here = tests::keep_known_machine();
  look();
  CHECK(shell.document().scenario().hardware == here.hardware);
  CHECK_FALSE(shell.document().scenario().hardware.peak.empty());
  const std::string slow = shell.exported("overview", ExportFormat::csv);
  // Again, twice as fast, in place of the first.
  here.hardware.peak[sim::DType::fp32] = sim::tflops(0.2);
  here.hardware.memory_bandwidth = sim::gb_per_s(40);
  tests::keep(here);
  look();
  CHECK(shell.document().scenario().hardware == here.hardware);
  CHECK(shell.exported("overview", ExportFormat::csv) != slow);
  // What is on other hardware stays as it is.
  shell.document().edit("elsewhere", tests::small_scenario());
  tests::keep_known_machine();
  look();
  CHECK(shell.document().scenario() == tests::small_scenario());
}

TEST_CASE(
    "a machine's file is known in the next frame where it was renamed over, and else files are looked at "
    "twice "
    "a second") {
  const CacheFolder cache;
  NullDesktop desktop;
  Shell& shell = desktop.shell();
  REQUIRE(shell.commands().invoke("hardware.this-machine"));
  sim::Calibration here = tests::keep_known_machine();
  // Frames until the next file is known.
  const auto frames_until_known = [&](double tflops, const std::filesystem::path& file) {
    here.hardware.peak[sim::DType::fp32] = sim::tflops(tflops);
    tests::keep(here, file);
    if (file != runtime::this_machine_file()) std::filesystem::rename(file, runtime::this_machine_file());
    int frames = 0;
    for (; frames < 100 && !(shell.document().scenario().hardware == here.hardware); ++frames) {
      desktop.frame();
      // Times of files are no finer than this.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return frames;
  };
  const std::filesystem::path machine = runtime::this_machine_file();
  const std::filesystem::path beside = machine.parent_path() / "new";
  REQUIRE(frames_until_known(0.2, beside) <= 2);
  const int in_place = frames_until_known(0.3, machine);
  CHECK(in_place > 20);
  CHECK(in_place <= 31);
  CHECK(frames_until_known(0.4, beside) <= 2);
}

TEST_CASE(
    "a preset is refitted to a table of one's own: what is predicted follows when it is kept, and goes back "
    "when it is forgotten") {
  const CacheFolder cache;
  const TemporaryFolder folder;
  sim::Scenario scenario = tests::small_scenario();
  scenario.workload.dtype = sim::DType::bf16;
  // Products twice as slow as the tables have them.
  std::string rows = "gpu,framework,dtype,m,n,k,latency_ms\n";
  const auto gpu = sim::load_gpu_calibration(scenario.hardware.name);
  REQUIRE(gpu);
  for (const int m : {512, 1024, 2048, 4096}) {
    const auto time =
        sim::product_time(*gpu, scenario.hardware, {static_cast<double>(m), 4096, 4096, sim::DType::bf16});
    REQUIRE(time);
    rows += scenario.hardware.name + ",," + "bfloat16," + std::to_string(m) + ",4096,4096," +
            std::to_string(2e3 * time->seconds.value) + "\n";
  }
  NullDesktop desktop(scenario, {1920, 1080});
  Shell& shell = desktop.shell();
  shell.view().maximised = "calibrate";
  desktop.settle_studies();
  const std::string as_shipped = shell.exported("overview", ExportFormat::csv);
  auto& state = desktop.state<CalibrateState>();
  state.refit.ask({scenario.hardware.name, folder.write("rows.csv", rows), 1});
  state.tried = true;
  desktop.settle_studies();
  CHECK(desktop.says("rows.csv: 1 table refitted to 4 rows."));
  CHECK_THAT(desktop.words(), contains("x2: 50.0 % to 0.0 %"));
  for (const std::string& problem : tests::unreadable_text()) FAIL_CHECK(problem);
  CHECK(shell.exported("overview", ExportFormat::csv) == as_shipped);  // only tried
  state.calibrations.keep(*state.refit.result());
  desktop.frames(31);
  desktop.settle_studies();
  const std::string refitted = shell.exported("overview", ExportFormat::csv);
  CHECK(refitted != as_shipped);
  const auto kept = app::cli::calibration_of(scenario.hardware);
  const auto shipped = sim::load_calibration_preset(scenario.hardware.name);
  REQUIRE(kept);
  REQUIRE(shipped);
  CHECK(sim::step_time(sim::predict(scenario, &*kept)).value >
        sim::step_time(sim::predict(scenario, &*shipped)).value);
  state.calibrations.forget_refit(scenario.hardware.name);
  desktop.frames(31);
  desktop.settle_studies();
  CHECK(shell.exported("overview", ExportFormat::csv) == as_shipped);
}

TEST_CASE(
    "the desktop prices ranks of this machine as the command line does, by what was measured of as many") {
  const CacheFolder cache;
  sim::Calibration here = tests::keep_known_machine();
  sim::Calibration ranks = here;
  ranks.hardware.devices_per_node = 2;
  ranks.hardware.node_link = sim::gb_per_s(3);
  ranks.hardware.peak[sim::DType::fp32] = sim::tflops(0.03);
  const int threads = std::max(1, static_cast<int>(runtime::own_cpus().size()) / 2);
  ranks.device = runtime::cpu_name(threads);
  ranks.software = runtime::ranks_version();
  tests::keep(ranks, cache.path() / "ridgepoint" /
                         ("this-machine-2-ranks-" + std::to_string(threads) + "-threads.json"));
  sim::Scenario scenario = tests::small_scenario();
  scenario.hardware = here.hardware;
  scenario.workload.dtype = sim::DType::fp32;
  NullDesktop desktop(scenario);
  scenario.strategy.data_parallel = 2;
  scenario.workload.global_batch_size *= 2;
  app::cli::link_ranks(scenario);
  REQUIRE(scenario.hardware == ranks.hardware);
  desktop.shell().document().edit("two ranks", scenario);
  desktop.settle();
  const auto calibration = app::cli::calibration_of(scenario.hardware);
  REQUIRE(calibration);
  const sim::Report report = sim::predict(scenario, &*calibration);
  CHECK(desktop.says(sim::format(sim::step_time(report))));
}
