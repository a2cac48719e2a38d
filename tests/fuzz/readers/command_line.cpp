// The words of a command line, of commands that only read and print.
// Read by: app/cli/command_line.cpp app/cli/flags.cpp app/cli/scenario_flags.cpp app/cli/predict_command.cpp
#include "app/cli/command_line.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "tests/fuzz/fuzz.h"

namespace {

// stdin ends at once, stdout leads nowhere, files are those of the folder of inputs.
void keep_to_the_folder() {
  setenv("XDG_CACHE_HOME", fuzz::folder().c_str(), 1);
  std::filesystem::current_path(fuzz::folder());
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(nowhere, STDIN_FILENO);
  dup2(nowhere, STDOUT_FILENO);
}

constexpr std::array<std::string_view, 4> kCommands = {"predict", "schema", "compare", "tokenize"};

}  // namespace

std::vector<std::string> fuzz::seeds() {
  return {"predict --model tiny-llama --hardware h100-sxm --seq-len 1k --micro-batch 2",
          "predict --model mixtral-8x7b --gpus 8 --ep 8 --dp 8 --global-batch 64 --format json",
          "predict --model llama-2-7b --hardware a100-sxm-80gb --tp 8 --gpus 8 --prompt-length 1k "
          "--max-new-tokens 64",
          "predict --model gpt2-124m --set model.num_hidden_layers=3 --recompute full --zero 3 --format csv",
          "predict --scenario scenario.json --format md",
          "schema sweep",
          "compare a.json b.json --format csv",
          "tokenize --model tiny-llama --text hello",
          "tokenize --model tiny-llama --ids 1,2,3"};
}

void fuzz::read(std::string_view input) {
  static const bool kept = (keep_to_the_folder(), true);
  (void)kept;
  std::vector<std::string> words = {"ridgepoint"};
  std::string word;
  for (const char c : std::string(input) + ' ') {
    if (c != ' ') {
      if (c != '\0') word += c;
      continue;
    }
    // A path out of the folder, a file to write, hardware that would be measured.
    const bool out = word.find('/') != std::string::npos || word.find("out") != std::string::npos ||
                     word.find("rec") == 2 || word.find("this") != std::string::npos;
    if (!word.empty() && (!out || word == "--recompute")) words.push_back(word);
    word.clear();
  }
  constexpr std::size_t kMostWords = 64;
  if (words.size() < 2 || words.size() > kMostWords) return;
  if (std::find(kCommands.begin(), kCommands.end(), words[1]) == kCommands.end()) return;
  std::vector<char*> arguments;
  for (std::string& text : words) arguments.push_back(text.data());
  arguments.push_back(nullptr);
  const int code = app::cli::run_command_line(static_cast<int>(words.size()), arguments.data());
  require(code == 0 || (code >= 2 && code <= 6), "a command line ends with a documented code");
}
