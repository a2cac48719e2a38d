#include "tests/app/program.h"
#include "tests/support/catch.h"

using program::run;

TEST_CASE("help shows examples that can be pasted before it lists flags") {
  const std::string command = GENERATE("", "predict", "train", "generate", "compare", "tokenize", "tour",
                                       "screenshot", "calibrate", "validate", "doctor", "schema", "replay");
  const program::Result help = command.empty() ? run({"--help"}) : run({command, "--help"});
  CAPTURE(command, help.out);
  CHECK(help.exit_code == 0);
  CHECK(help.err.empty());
  const std::size_t examples = help.out.find("Examples:\n  ridgepoint");
  REQUIRE(examples != std::string::npos);
  CHECK(examples < help.out.find("Usage:"));
  CHECK(examples < help.out.find("--help"));
}

TEST_CASE("the program's help has one line for each command") {
  const program::Result help = run({"--help"});
  for (const std::string command : {"predict", "train", "generate", "compare", "tokenize", "tour",
                                    "screenshot", "calibrate", "validate", "doctor", "schema", "replay"}) {
    CAPTURE(command);
    CHECK(help.out.find("\n  " + command + " ") != std::string::npos);
  }
}

TEST_CASE("the version flag prints the version and nothing else") {
  const program::Result version = run({"--version"});
  CHECK(version.exit_code == 0);
  CHECK(version.out.rfind("ridgepoint ", 0) == 0);
  CHECK(version.out.find('\n') == version.out.size() - 1);
  CHECK(version.err.empty());
}
