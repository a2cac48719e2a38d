// What comes from outside cannot hurt: files made to break a reader, an output that takes nothing, little
// memory.
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/app/program.h"
#include "tests/support/catch.h"

using program::Folder;
using program::Result;
using program::run;

namespace {

std::string deep_json() {
  constexpr std::size_t kLevels = 200000;
  return "{\"a\": " + std::string(kLevels, '[') + std::string(kLevels, ']') + "}";
}

// The program's stdout is what the shell makes of `redirection`.
Result run_into(const std::string& redirection, const std::vector<std::string>& arguments) {
  return run(arguments, {"/bin/sh", "-c", "exec \"$0\" \"$@\" " + redirection});
}

}  // namespace

TEST_CASE("JSON nested without end is refused by the file's name, whoever reads it") {
  const Folder folder;
  const std::string scenario = folder.write("scenario.json", deep_json());
  folder.write("tokenizer.json", deep_json());
  folder.write("config.json", R"({"model_type": "llama", "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 256,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true})");
  const std::string report = folder.write("report.json", deep_json());
  for (const Result& result : {run({"predict", "--scenario", scenario}), run({"compare", report, report}),
                               run({"tokenize", "--model", folder.path("."), "--text", "x"})}) {
    CAPTURE(result.err);
    CHECK(result.exit_code == 4);
    CHECK(result.err.find(".json") != std::string::npos);
    CHECK(result.err.find("nested too deeply") != std::string::npos);
  }
}

TEST_CASE("control bytes of a file reach no terminal with the message about it") {
  const Folder folder;
  const std::string file = folder.write("odd.json",
                                        "{\"model\": \"\xc2\x9b"
                                        "31m\\u001b[31m\"}");
  const Result result = run({"predict", "--scenario", file});
  CHECK(result.exit_code != 0);
  CHECK(result.err.find('\x1b') == std::string::npos);
  CHECK(result.err.find("\xc2\x9b") == std::string::npos);
}

TEST_CASE("data from a pipe is refused at once instead of waited for") {
  const Folder folder;
  const std::string pipe = folder.path("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const Result result = run({"train", "--model", "tiny-llama", "--data", pipe, "--steps", "1"});
  CHECK(result.exit_code == 4);
  CHECK(result.err.find("is not a regular file") != std::string::npos);
}

TEST_CASE("a result that cannot be written is no success") {
  const std::vector<std::string> predict = {"predict", "--model", "gpt2-124m", "--hardware", "a100-sxm-80gb"};
  const std::vector<std::vector<std::string>> commands = {
      predict, {"--help"}, {"schema", "sweep"}, {"lesson"}, {"doctor"}};
  for (const std::vector<std::string>& command : commands)
    for (const char* redirection : {"> /dev/full", ">&-"}) {
      const Result result = run_into(redirection, command);
      CAPTURE(command, redirection, result.err);
      CHECK(result.exit_code == 6);
      CHECK(result.err.find("ridgepoint: ") != std::string::npos);
    }
}

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // whose own tables take terabytes of addresses
TEST_CASE("predicting and planning need little memory: what computes is loaded when it is needed") {
  const std::vector<std::string> limited = {"/bin/sh", "-c", "ulimit -v 300000; exec \"$0\" \"$@\""};
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"--help"},
        {"predict", "--model", "gpt2-124m", "--hardware", "h100-sxm"},
        {"plan", "--model", "gpt2-124m", "--gpus", "4", "--global-batch", "16"}}) {
    const Result result = run(command, limited);
    CAPTURE(command, result.err);
    CHECK(result.exit_code == 0);
  }
}
#endif
