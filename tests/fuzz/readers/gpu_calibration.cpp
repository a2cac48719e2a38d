// A GPU's calibration among the presets, and times looked up in it.
// Read by: sim/cost/gpu_calibration_json.cpp sim/cost/gpu_calibration.cpp
#include "sim/cost/gpu_calibration.h"

#include <cstdlib>

#include "sim/scenario/preset.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  unsetenv("RIDGEPOINT_PRESETS");
  std::vector<std::string> all = files_of("presets/calibrations", ".json");
  all.push_back(
      R"({"hardware":"h100-sxm","source":"here","launch_us":2,"kernels":[{"kernel":"matmul","software":"a",
"dtype":"bf16","bands":[{"below_us":10,"low":-0.1,"high":0.2},{"low":-0.1,"high":0.1}],
"axes":{"n":[64,128],"k":[64],"m":[1,2,4]},"log_ratio_steps":[100,1,2,100,3,4],"source":"b"}],
"collectives":[{"operation":"all_reduce","software":"NCCL","nodes":1,"ranks":8,"latency_us":10,"bus_gb_per_s":300,
"ramp_us_per_sqrt_mb":1,"bands":[{"low":-0.1,"high":0.1}],"bytes":[1024,2048],"log_ratio_steps":[0,1],"source":"c"}]})");
  return all;
}

void fuzz::read(std::string_view input) {
  static const sim::Hardware hardware = sim::load_hardware_preset("h100-sxm");
  const std::filesystem::path path = fuzz::file("calibrations/fuzzed.json", input);
  setenv("RIDGEPOINT_PRESETS", folder().c_str(), 1);
  const auto calibration = sim::load_gpu_calibration("fuzzed");
  require(calibration.has_value(), "a file that is there is read");
  const auto sound = [](const std::optional<sim::MeasuredTime>& time) {
    require(!time || time->seconds.value >= 0, "what is looked up takes no negative time");
  };
  for (const double size : {1.0, 96.0, 1e6}) {
    sound(sim::product_time(*calibration, hardware, {size, 64, 64, sim::DType::bf16}));
    sound(sim::attention_time(*calibration, hardware, sim::MeasuredKernel::attention_forward,
                              {1, 8, 8, 64, size, size, true, sim::DType::bf16}));
    sound(
        sim::collective_time(*calibration, hardware, {sim::CollectiveOperation::all_reduce, size, 8, 8, 1}));
  }
}
