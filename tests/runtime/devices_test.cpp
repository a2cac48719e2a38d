#include "runtime/devices.h"

#include <cmath>
#include <cstdlib>
#include <set>

#include "runtime/cuda_backend.h"
#include "runtime/error.h"
#include "runtime/formats/float_formats.h"
#include "sim/scenario/preset.h"
#include "tests/support/catch.h"

using runtime::DeviceChoice;

TEST_CASE("the flag --device takes cpu, cuda and a GPU's number, and nothing else") {
  using Kind = DeviceChoice::Kind;
  REQUIRE(runtime::device_choice_from_name("cpu"));
  CHECK(runtime::device_choice_from_name("cpu")->kind == Kind::cpu);
  CHECK(runtime::device_choice_from_name("cuda")->kind == Kind::cuda);
  CHECK(runtime::device_choice_from_name("cuda")->ordinal == 0);
  CHECK(runtime::device_choice_from_name("cuda:3")->ordinal == 3);
  for (const char* const name : {"", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:1x", "cuda1", "cuda: 1"}) {
    CAPTURE(name);
    CHECK_FALSE(runtime::device_choice_from_name(name));
  }
}

TEST_CASE("a GPU's name finds the preset of its hardware, and every such preset exists") {
  const std::vector<std::string> presets = sim::preset_names(sim::PresetKind::hardware);
  const std::set<std::string> known(presets.begin(), presets.end());
  // As cudaGetDeviceProperties names them.
  for (const auto& [name, preset] :
       {std::pair{"NVIDIA H200", "h200-sxm"}, std::pair{"NVIDIA H100 80GB HBM3", "h100-sxm"},
        std::pair{"NVIDIA H100 PCIe", "h100-pcie"}, std::pair{"NVIDIA H100 NVL", "h100-nvl"},
        std::pair{"NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"},
        std::pair{"NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"},
        std::pair{"NVIDIA A100 80GB PCIe", "a100-pcie-80gb"},
        std::pair{"NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"}, std::pair{"NVIDIA B200", "b200-sxm"},
        std::pair{"NVIDIA L40S", "l40s"}, std::pair{"NVIDIA GeForce RTX 4090", "rtx-4090"}}) {
    CAPTURE(name);
    CHECK(runtime::hardware_preset_of_gpu(name) == preset);
    CHECK(known.count(preset) == 1);
  }
  CHECK(runtime::hardware_preset_of_gpu("NVIDIA GeForce GTX 1080").empty());
}

TEST_CASE(
    "without a backend that loads there are no GPUs, a sentence says why, and opening one is refused with "
    "it") {
  // Asked once a process: whatever the machine has, this file is no backend.
  setenv("RIDGEPOINT_CUDA_BACKEND", "/nowhere/libridgepoint_cuda.so", 1);
  const runtime::CudaStatus status = runtime::cuda_status();
  CHECK(status.gpus.empty());
  CHECK_THAT(status.sentence, contains("built without the CUDA backend"));
  DeviceChoice choice;
  choice.kind = DeviceChoice::Kind::cuda;
  CHECK_THROWS_WITH(runtime::open_device(choice), status.sentence);
  CHECK_THROWS_AS(runtime::open_device(choice), runtime::NoDevice);
}

TEST_CASE("fp32 is rounded to the nearest bf16, to the even one of two as near") {
  const auto rounded = [](float x) { return runtime::bf16_to_f32(runtime::f32_to_bf16(x)); };
  CHECK(rounded(1.0f) == 1.0f);
  CHECK(rounded(1.0f + 0x1p-8f) == 1.0f);                    // half-way: down to even
  CHECK(rounded(1.0f + 3 * 0x1p-8f) == 1.0f + 4 * 0x1p-8f);  // half-way: up to even
  CHECK(rounded(1.0f + 1.01f * 0x1p-8f) == 1.0f + 0x1p-7f);
  CHECK(std::isinf(rounded(3.4e38f)));
  CHECK(std::isnan(rounded(NAN)));
}
