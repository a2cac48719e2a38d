// ridgepoint doctor: what this machine offers and what is missing, a sentence each.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "app/cli/command.h"
#include "app/cli/device_list.h"
#include "app/cli/executable.h"
#include "app/cli/flags.h"
#include "runtime/cuda_backend.h"
#include "runtime/devices.h"
#include "runtime/error.h"
#include "runtime/gpu_state.h"
#include "runtime/model_source.h"
#include "runtime/nccl_library.h"
#include "runtime/this_machine.h"
#include "sim/format.h"
#include "sim/scenario/preset.h"

namespace app::cli {

namespace {

struct Finding {
  std::string name;
  bool good = true;
  std::string sentence;
};

Finding processor() {
  return {
      "processor", true,
      fmt::format("{} of {} hardware threads.", runtime::cpu_name(), std::thread::hardware_concurrency())};
}

Finding memory() {
  return {"memory", true,
          fmt::format("{} for this program and its neighbours.", sim::format(runtime::physical_memory()))};
}

Finding blas() {
  try {
    return {"blas", true,
            fmt::format("{}. Large products in fp32 are formed by {}, products in bf16 by {}.",
                        runtime::blas_name(), runtime::fp32_products_name(), runtime::bf16_products_name())};
  } catch (const runtime::NoDevice& error) {
    return {"blas", false, fmt::format("Nothing can be computed on the CPU: {}.", error.what())};
  }
}

Finding display() {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0';
  };
  if (set("WAYLAND_DISPLAY")) return {"display", true, "A Wayland display is set; the desktop opens there."};
  if (set("DISPLAY")) return {"display", true, "An X11 display is set; the desktop opens there."};
  return {"display", false,
          "No display is set (DISPLAY, WAYLAND_DISPLAY): ridgepoint takes the tour instead of the desktop."};
}

// Runs in a process of its own, since a broken OpenGL driver may end the process that asks it.
Finding pictures() {
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "ridgepoint-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr)
    return {"pictures", false, fmt::format("No folder for a picture could be made: {}.", folder)};
  const fs::path picture = fs::path(folder) / "doctor.png";
  std::string program = executable_path(), file = picture.string();
  std::string command = "screenshot", size_flag = "--size", size = "320x200", out_flag = "--out";
  char* arguments[] = {program.data(),  command.data(), size_flag.data(), size.data(),
                       out_flag.data(), file.data(),    nullptr};
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  int status = -1;
  if (posix_spawn(&child, program.c_str(), &quiet, nullptr, arguments, environ) == 0)
    waitpid(child, &status, 0);
  posix_spawn_file_actions_destroy(&quiet);
  const bool drawn = WIFEXITED(status) && WEXITSTATUS(status) == 0 && fs::exists(picture);
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  if (drawn) return {"pictures", true, "OpenGL draws without a display: ridgepoint screenshot works."};
  return {"pictures", false,
          "No OpenGL draws without a display: pictures need Mesa (Debian: libegl1 libgl1-mesa-dri)."};
}

Finding pretrained() {
  for (const runtime::PretrainedModel& model : runtime::pretrained_models()) {
    if (model.present) return {"pretrained_model", true, fmt::format("{} is in {}.", model.name, model.file)};
    return {"pretrained_model", false,
            fmt::format("{} is not here; scripts/fetch_model fetches it.", model.name)};
  }
  return {"pretrained_model", false, "This program knows no pretrained model."};
}

Finding calibration() {
  const std::optional<sim::Calibration> known = runtime::cached_this_machine();
  if (!known)
    return {"calibration", false,
            "This machine has not been measured: ridgepoint calibrate does it, or the first run."};
  return {
      "calibration", true,
      fmt::format(
          "Measured {} with {}{}: {} in fp32, {} from memory; predictions of single kernels are off by {} "
          "(median), {} (nine in ten are below).",
          known->date, known->software,
          known->cores_used_by_others < 0.1
              ? ""
              : fmt::format(" while other programs kept {:.1f} cores busy", known->cores_used_by_others),
          sim::format(known->hardware.peak_for(sim::DType::fp32)),
          sim::format(known->hardware.memory_bandwidth), sim::format_percent(known->residual.median),
          sim::format_percent(known->residual.p90))};
}

Finding presets() {
  try {
    sim::require_preset_directory();
  } catch (const std::system_error& error) {
    return {"presets", false, fmt::format("Nothing can be predicted: {}.", error.what())};
  }
  return {"presets", true,
          fmt::format("{} models and {} kinds of hardware in {}.",
                      sim::preset_names(sim::PresetKind::model).size(),
                      sim::preset_names(sim::PresetKind::hardware).size(), sim::preset_directory().string())};
}

Finding cuda() {
  runtime::CudaStatus status = runtime::cuda_status();
  std::string& sentence = status.sentence;
  sentence.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(sentence.front())));
  return {"cuda", !status.gpus.empty(), sentence + "."};
}

Finding nccl() {
  runtime::NcclStatus status = runtime::nccl_status();
  status.sentence.front() =
      static_cast<char>(std::toupper(static_cast<unsigned char>(status.sentence.front())));
  return {"nccl", status.loads, status.sentence + "."};
}

Finding gpu_driver() {
  const runtime::DriverStatus status = runtime::driver_status();
  std::string sentence = status.sentence;
  for (const runtime::GpuDescription& gpu : status.gpus)
    sentence += fmt::format("{}{}: driver {}, {:.0f} MHz of at most {:.0f}, memory {:.0f} MHz",
                            sentence.empty() ? "" : "; ", gpu.name, gpu.driver, gpu.sm_clock_mhz,
                            gpu.highest_sm_clock_mhz, gpu.memory_clock_mhz);
  return {"gpu_driver", !status.gpus.empty(), sentence + "."};
}

// The value of --device for this device, and the types that runs compute in there.
Finding device_finding(const runtime::MachineDevice& device) {
  return {"device " + device.flag, device.missing.empty(), device_sentence(device)};
}

// A check that fails is a finding too.
Finding guarded(const char* name, Finding (*find)()) {
  try {
    return find();
  } catch (const std::exception& e) {
    return {name, false, e.what()};
  }
}

ExitCode doctor(Format format, bool devices_alone) {
  const std::vector<runtime::MachineDevice> devices = runtime::machine_devices();
  if (devices_alone && format == Format::json) {
    fmt::print("{}\n", devices_to_json(devices));
    return ExitCode::fine;
  }
  std::vector<Finding> findings;
  if (!devices_alone) {
    // This comes before the picture. The process that draws one reads the calibration too, and what it says
    // of a damaged one is not shown.
    const Finding measured = guarded("calibration", calibration);
    findings = {guarded("processor", processor),
                guarded("memory", memory),
                guarded("blas", blas),
                guarded("gpu_driver", gpu_driver),
                guarded("cuda", cuda),
                guarded("nccl", nccl),
                guarded("display", display),
                guarded("pictures", pictures),
                guarded("presets", presets),
                guarded("pretrained_model", pretrained),
                measured};
  }
  for (const runtime::MachineDevice& device : devices) findings.push_back(device_finding(device));
  if (format == Format::json) {
    nlohmann::ordered_json json = {{"schema_version", 1}, {"findings", nlohmann::ordered_json::array()}};
    for (const Finding& finding : findings)
      json["findings"].push_back(
          {{"name", finding.name}, {"good", finding.good}, {"sentence", finding.sentence}});
    json["devices"] = nlohmann::ordered_json::parse(devices_to_json(devices)).at("devices");
    fmt::print("{}\n", json.dump(2));
    return ExitCode::fine;
  }
  for (const Finding& finding : findings)
    fmt::print("{:<3} {:<17} {}\n", finding.good ? "ok" : "-", finding.name, finding.sentence);
  return ExitCode::fine;
}

}  // namespace

void add_doctor(CLI::App& program, Invocation& invocation) {
  const auto format = std::make_shared<Format>(Format::text);
  CLI::App* command = program.add_subcommand(
      "doctor",
      describe("Say what this machine offers and what is missing.",
               {"ridgepoint doctor", "ridgepoint doctor --format json", "ridgepoint doctor --devices"}));
  const auto devices_alone = std::make_shared<bool>(false);
  command->add_flag("--devices", *devices_alone,
                    "only what --device takes here, and the types that runs there compute in");
  add_format(*command, *format, {Format::text, Format::json});
  command->callback([format, devices_alone, &invocation] {
    invocation.run = [format, devices_alone] { return doctor(*format, *devices_alone); };
  });
}

}  // namespace app::cli
