// The environment that a program is started in: no home, folders that cannot be made, variables that point
// nowhere. What does not need them works; what does says which one in a sentence.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "source_folder.h"
#include "tests/app/program.h"
#include "tests/support/catch.h"

using program::Folder;
using program::Result;
using program::run;

namespace {

constexpr int kBadFile = 4, kNoDevice = 5, kDeviceError = 6;
const std::vector<std::string> kPredict = {"predict", "--model", "tiny-llama", "--hardware", "h100-sxm"};
const std::vector<std::string> kPlan = {"plan",     "--model", "tiny-llama", "--hardware",
                                        "h100-sxm", "--gpus",  "2"};
const std::vector<std::string> kGenerate = {"generate", "--model",         "tiny-llama", "--device",
                                            "cpu",      "--prompt-tokens", "1,2,3",      "--max-new-tokens",
                                            "2"};

std::vector<std::string> in_environment(const std::string& setting) {
  return {"env", setting};
}

// A table of measurements whose predictions are more than 512 bytes, and the command that writes them.
std::vector<std::string> writing(const Folder& folder, const std::string& file) {
  std::string table = "gpu,framework,dtype,m,n,k,latency_ms\n";
  for (int row = 0; row < 16; ++row) table += "H100-80GB-SXM,cuBLAS,bf16,4096,4096,1024,0.1\n";
  return {"validate", folder.write("table.csv", table), "--out", file};
}

std::vector<std::string> in_shell(const std::string& before, const std::string& after) {
  return {"/bin/sh", "-c", before + "exec \"$0\" \"$@\" " + after};
}

}  // namespace

TEST_CASE("a prediction and a search need no home and no cache") {
  const Result usual = run(kPredict);
  REQUIRE(usual.exit_code == 0);
  const std::vector<std::vector<std::string>> environments = {
      {"env", "-u", "HOME", "-u", "XDG_CACHE_HOME", "-u", "XDG_CONFIG_HOME"},
      {"env", "XDG_CACHE_HOME=/proc/none", "XDG_CONFIG_HOME=/proc/none"},
      {"env", "XDG_CACHE_HOME=/dev/null"}};
  for (const auto& environment : environments) {
    CAPTURE(environment);
    CHECK(run(kPredict, environment).out == usual.out);
    CHECK(run(kPlan, environment).exit_code == 0);
    CHECK(run({"doctor"}, environment).exit_code == 0);
    CHECK(run({"--help"}, environment).exit_code == 0);
  }
}

TEST_CASE("a calibration is refused before it is measured where nothing can keep it") {
  const Result homeless = run({"calibrate"}, {"env", "-u", "HOME", "-u", "XDG_CACHE_HOME"});
  CHECK(homeless.exit_code == kBadFile);
  CHECK_THAT(homeless.err, contains("neither XDG_CACHE_HOME nor HOME says where caches lie"));
  const Result unwritable = run({"calibrate"}, in_environment("XDG_CACHE_HOME=/proc/none"));
  CHECK(unwritable.exit_code == kBadFile);
  CHECK_THAT(unwritable.err, contains("cannot make the folder /proc/none/ridgepoint"));
}

TEST_CASE("RIDGEPOINT_PRESETS that names no folder is named by what needs presets, and by nothing else") {
  const std::vector<std::string> nowhere = in_environment("RIDGEPOINT_PRESETS=/nowhere");
  for (const auto& words :
       {kPredict, kPlan, std::vector<std::string>{"lesson"}, std::vector<std::string>{"schema", "scenario"},
        std::vector<std::string>{"validate", RIDGEPOINT_SOURCE_DIR "/presets/published/training.csv"}}) {
    CAPTURE(words);
    const Result result = run(words, nowhere);
    CHECK(result.exit_code == kBadFile);
    CHECK_THAT(result.err, contains("RIDGEPOINT_PRESETS must name the folder of presets: /nowhere"));
  }
  const Folder other;
  const Result wrong = run(kPredict, in_environment("RIDGEPOINT_PRESETS=" + other.path("")));
  CHECK(wrong.exit_code == kBadFile);
  CHECK_THAT(wrong.err, contains("RIDGEPOINT_PRESETS must name the folder of presets"));
  CHECK(run({"--help"}, nowhere).exit_code == 0);
  CHECK(run({"--version"}, nowhere).exit_code == 0);
  const Result doctor = run({"doctor"}, nowhere);
  CHECK(doctor.exit_code == 0);
  CHECK_THAT(doctor.out, contains("RIDGEPOINT_PRESETS must name the folder of presets: /nowhere"));
}

TEST_CASE("RIDGEPOINT_CUDA_BACKEND that names no file is named by a run on a GPU, and hinders nothing else") {
  const std::vector<std::string> nowhere = in_environment("RIDGEPOINT_CUDA_BACKEND=/nowhere/backend.so");
  std::vector<std::string> on_gpu = kGenerate;
  on_gpu[4] = "cuda";
  const Result result = run(on_gpu, nowhere);
  CHECK(result.exit_code == kNoDevice);
  CHECK_THAT(result.err, contains("RIDGEPOINT_CUDA_BACKEND"));
  CHECK_THAT(result.err, contains("/nowhere/backend.so"));
  CHECK(run(kPredict, nowhere).exit_code == 0);
}

TEST_CASE("a damaged calibration is kept under another name, said once, and costs a prediction nothing") {
  const Folder folder;
  const std::string damaged = "{\"schema_version\": 1, \"device\"";
  const std::string file = folder.write("ridgepoint/gpu-h100-sxm.json", damaged);
  const std::vector<std::string> environment = in_environment("XDG_CACHE_HOME=" + folder.path(""));
  const Result first = run(kPredict, environment);
  CHECK(first.exit_code == 0);
  CHECK_THAT(first.err, contains(file + ".set-aside"));
  CHECK(first.out == run(kPredict, in_environment("XDG_CACHE_HOME=/proc/none")).out);
  CHECK_FALSE(std::filesystem::exists(file));
  std::ifstream kept(file + ".set-aside");
  CHECK(std::string(std::istreambuf_iterator<char>(kept), {}) == damaged);
  CHECK(run(kPredict, environment).err.empty());
  folder.write("ridgepoint/gpu-h100-sxm.json", "[]");  // again: the one before stays
  CHECK_THAT(run(kPredict, environment).err, contains(file + ".set-aside-2"));
  CHECK(std::filesystem::exists(file + ".set-aside"));
}

TEST_CASE("standard streams that are closed end nothing but what is written to them") {
  CHECK(run(kPredict, in_shell("", "<&-")).exit_code == 0);
  CHECK(run(kPredict, in_shell("", "<&- 2>&-")).out == run(kPredict).out);
  CHECK(run(kPredict, in_shell("", "<&- >&- 2>&-")).exit_code == kDeviceError);
  CHECK(run({"predict", "--model", "none"}, in_shell("", "<&- >&- 2>&-")).exit_code == 2);
  const Folder folder;
  const std::string file = folder.path("out.csv");
  const std::vector<std::string> into_file = writing(folder, file);
  REQUIRE(run(into_file).exit_code == 0);
  std::ifstream usual(file);
  const std::string expected(std::istreambuf_iterator<char>(usual), {});
  CHECK(run(into_file, in_shell("", "<&- 2>&-")).exit_code == 0);  // no message lands in the file
  std::ifstream written(file);
  CHECK(std::string(std::istreambuf_iterator<char>(written), {}) == expected);
}

TEST_CASE("messages that stderr does not take end no run") {
  if (!std::ofstream("/dev/full")) SKIP_WITHOUT("/dev/full");
  CHECK(run(kPlan, in_shell("", "2> /dev/full")).exit_code == 0);
  std::vector<std::string> train = {"train",     "--model", "tiny-llama", "--device", "cpu",
                                    "--seq-len", "16",      "--steps",    "2"};
  CHECK(run(train, in_shell("", "2> /dev/full")).exit_code == 0);
}

TEST_CASE("a file that may not grow is an error with a sentence, not a signal") {
  const Folder folder;
  const Result result = run(writing(folder, folder.path("out.csv")), in_shell("ulimit -f 1; ", ""));
  CHECK(result.exit_code == kDeviceError);
  CHECK_THAT(result.err, contains("out.csv"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which reserve more than any such limit
TEST_CASE("matrix products without room for their library's buffers end with a sentence") {
  // How much is too little depends on the machine's cores: a run either has room or says that it has none, of
  // the library's buffers or before them of the plan's.
  bool ended_early = false;
  for (const int limit_kib : {300000, 400000, 600000, 900000, 1300000}) {
    const Result result = run(kGenerate, in_shell("ulimit -v " + std::to_string(limit_kib) + "; ", ""));
    CAPTURE(limit_kib, result.err);
    if (result.exit_code == 0) continue;
    CHECK(result.exit_code == kDeviceError);
    CHECK_THAT(result.err, contains("no memory left") || contains("of memory: "));
    ended_early = true;
  }
  CHECK(ended_early);
}
#endif
