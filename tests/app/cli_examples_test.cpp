// The examples of every --help are run as they stand there, but for how many steps they train.
#include <wordexp.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "app/gui/desktop.h"
#include "sim/scenario/preset.h"
#include "source_folder.h"
#include "tests/app/program.h"
#include "tests/support/catch.h"

using program::Folder;
using program::Result;
using program::run;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> kCommands{
    "predict", "train",    "generate",   "compare", "plan",   "validate", "bench", "calibrate",
    "measure", "tokenize", "screenshot", "lesson",  "schema", "doctor",   "tour",  "replay"};

// The words of each example, by a shell's rules, without the program's name.
std::vector<std::vector<std::string>> examples_of(const std::string& command) {
  const std::string help = run({command, "--help"}).out;
  const std::size_t usage = help.find("Usage:");
  std::vector<std::vector<std::string>> examples;
  for (std::size_t at = help.find("Examples:"); at < usage;) {
    at = help.find("\n  ", at);
    if (at >= usage) break;
    at += 3;
    const std::string line = help.substr(at, help.find('\n', at) - at);
    wordexp_t words;
    REQUIRE(wordexp(line.c_str(), &words, WRDE_NOCMD | WRDE_UNDEF) == 0);
    examples.emplace_back(words.we_wordv, words.we_wordv + words.we_wordc);
    wordfree(&words);
  }
  return examples;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Examples that measure for minutes, or want what a test cannot give them: a screen, ranks, weights.
bool is_tried(const std::vector<std::string>& words) {
  static const std::set<std::string> long_ones{"bench", "calibrate",  "measure",
                                               "tour",  "screenshot", "generate"};
  return words.front() == "ridgepoint" && !long_ones.contains(words.at(1)) && !has(words, "gpt2-124m") &&
         !has(words, "smollm2-135m-instruct") && !has(words, "./hugging_face_folder") &&
         !has(words, "--measure") &&                                // a calibration goes before it
         !(has(words, "--handout") && app::panel_names().empty());  // nothing draws its pictures then
}

// Training of one step, or of one after that one, in place of all that an example asks for.
void shorten(std::vector<std::string>& words) {
  if (words.at(1) != "train") return;
  const auto steps = std::find(words.begin(), words.end(), "--steps");
  if (steps != words.end()) words.erase(steps, steps + 2);
  words.insert(words.end(), {"--steps", has(words, "--resume") ? "2" : "1"});
}

// A folder with the files that examples name, in which they run.
class ExampleFolder {
 public:
  ExampleFolder() : before_(fs::current_path()) {
    fs::create_directories(folder_.path("out"));
    fs::create_directories(folder_.path("my_notes"));
    std::string text;
    for (int i = 0; i < 4000; ++i) text += "the ridge point of a roofline is where bytes and FLOPs meet. ";
    folder_.write("my_notes/notes.txt", text);
    const std::string scenario =
        R"({"model": "tiny-gpt", "hardware": "h100-sxm", "workload": {"seq_len": 128}})";
    folder_.write("my_run.json", scenario);
    folder_.write("scenarios.ndjson", scenario + "\n" + scenario + "\n");
    folder_.write("sweep.json", R"({"schema_version": 1, "vary": {"model": ["tiny-gpt"], "gpus": [1, 2]}})");
    const std::string report =
        run({"predict", "--scenario", folder_.path("my_run.json"), "--format", "json"}).out;
    for (const std::string name : {"before.json", "after.json", "predicted.json", "out/train.predicted.json",
                                   "out/train.measured.json", "run.ndjson"})
      folder_.write(name, report);
    const std::string products =
        "gpu,framework,dtype,m,n,k,latency_ms\nA100-SXM4-80GB,SGLang 0.5.10,bfloat16,4096,4096,4096,0.55\n";
    for (const std::string name : {"products.csv", "kernels.csv", "collectives.csv"})
      folder_.write(name, products);
    fs::copy(fs::path(RIDGEPOINT_SOURCE_DIR) / "presets" / "lessons" / "batch-size.md",
             folder_.path("my_lesson.md"));
    fs::create_directory(folder_.path("my_class"));
    fs::copy(folder_.path("my_lesson.md"), folder_.path("my_class"));
    fs::current_path(folder_.path("."));
  }
  ~ExampleFolder() { fs::current_path(before_); }

 private:
  Folder folder_;
  fs::path before_;
};

}  // namespace

TEST_CASE("every example in a command's help runs") {
  const ExampleFolder folder;
  for (const std::string& command : kCommands) {
    const auto examples = examples_of(command);
    CHECK_FALSE(examples.empty());
    for (std::vector<std::string> words : examples) {
      if (!is_tried(words)) continue;
      shorten(words);
      words.erase(words.begin());
      CAPTURE(words);
      const Result result = run(words);
      CHECK(result.exit_code == 0);
      CHECK_FALSE(result.out.empty());
    }
  }
}

TEST_CASE("every model, hardware and implementation that a help's examples name exists") {
  for (const std::string& command : kCommands)
    for (const auto& words : examples_of(command))
      for (const auto& [flag, kind] : {std::pair{"--model", sim::PresetKind::model},
                                       {"--hardware", sim::PresetKind::hardware},
                                       {"--implementation", sim::PresetKind::implementation}}) {
        const auto found = std::find(words.begin(), words.end(), flag);
        if (found == words.end()) continue;
        const std::string value = *std::next(found);
        if (value.find('/') != std::string::npos || value.ends_with(".gguf") || value == sim::kThisMachine)
          continue;
        if (value == "smollm2-135m-instruct") continue;  // weights, not a shape: runtime/model_source.h
        const auto names = sim::preset_names(kind);
        CAPTURE(words);
        CHECK(std::find(names.begin(), names.end(), value) != names.end());
      }
}
