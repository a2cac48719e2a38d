// ridgepoint plan over processes that mpirun started. Where there is no MPI, a sentence stands for each test.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "tests/app/program.h"
#include "tests/support/catch.h"

using program::Folder;
using program::Result;
using program::run;

namespace {

using Arguments = std::vector<std::string>;

bool is_on_path(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::string_view left = path == nullptr ? "" : path;
  while (!left.empty()) {
    const std::size_t colon = std::min(left.find(':'), left.size());
    if (access((std::filesystem::path(left.substr(0, colon)) / name).c_str(), X_OK) == 0) return true;
    left.remove_prefix(std::min(colon + 1, left.size()));
  }
  return false;
}

constexpr const char* kLauncher = "mpirun, or no MPI in the program";
bool can_start_ranks() {
  return RIDGEPOINT_HAS_MPI != 0 && is_on_path("mpirun");
}

Arguments ranks(int n) {
  return {"mpirun", "-n", std::to_string(n), "--oversubscribe", "--allow-run-as-root"};
}

Arguments with(Arguments arguments, const Arguments& further) {
  arguments.insert(arguments.end(), further.begin(), further.end());
  return arguments;
}

const Arguments kSearch{"plan",     "--model",  "tiny-llama",          "--gpus",   "8",     "--global-batch",
                        "16",       "--search", "recompute=none,full", "--search", "vpp=1", "--search",
                        "zero=0,1", "--search", "schedule=1f1b,zb-h1", "--range",  "150"};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::ptrdiff_t lines_of(const std::string& path) {
  const std::string text = text_of(path);
  return std::count(text.begin(), text.end(), '\n');
}

// Processes that work at the journal, of which some are ranks.
std::vector<pid_t> processes_with(const std::string& word) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string line = text_of((entry.path() / "cmdline").string());
    std::replace(line.begin(), line.end(), '\0', ' ');
    if (line.rfind("mpirun", 0) != 0 && line.find(word) != std::string::npos)
      found.push_back(std::stoi(name));
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

TEST_CASE("a plan over 1, 2 and 4 ranks is the same to the byte") {
  if (!can_start_ranks()) SKIP_WITHOUT(kLauncher);
  const char* const format = GENERATE("text", "json");
  const Arguments search = with(kSearch, {"--format", format});
  const Result alone = run(search);
  REQUIRE(alone.exit_code == 0);
  for (const int n : {1, 2, 4}) {
    const Result result = run(search, ranks(n));
    CAPTURE(n, result.err);
    CHECK(result.exit_code == 0);
    CHECK(result.out == alone.out);
  }
}

TEST_CASE("a sweep over ranks is the same as alone, and so is a journal taken up by more of them") {
  if (!can_start_ranks()) SKIP_WITHOUT(kLauncher);
  const Folder folder;
  const std::string file = folder.write(
      "sweep.json", R"({"schema_version": 1, "vary": {"gpus": [2, 4, 8], "seq-len": [128, 256]}})");
  const Arguments sweep = with(kSearch, {"--sweep", file, "--format", "csv"});
  const Result alone = run(sweep);
  REQUIRE(alone.exit_code == 0);
  const std::string journal = folder.path("journal.ndjson");
  CHECK(run(with(sweep, {"--journal", journal}), ranks(2)).out == alone.out);
  const std::string whole = text_of(journal);
  const std::string part = whole.substr(0, whole.size() / 3);
  std::ofstream(journal) << part;
  CHECK(run(with(sweep, {"--journal", journal, "--resume"}), ranks(3)).out == alone.out);
}

TEST_CASE("a rank that is killed is named, what was finished is kept, and the search can be resumed") {
  if (!can_start_ranks()) SKIP_WITHOUT(kLauncher);
  const Folder folder;
  const std::string journal = folder.path("journal.ndjson");
  const Arguments search{"plan", "--model", "gpt2-124m", "--gpus",    "64",   "--global-batch",
                         "64",   "--range", "200",       "--journal", journal};
  program::Running running(search, ranks(3));
  while (lines_of(journal) < 4) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const std::vector<pid_t> processes = processes_with(journal);
  REQUIRE(processes.size() == 3);
  kill(processes.back(), SIGKILL);
  const Result result = running.finish();
  CAPTURE(result.err);
  CHECK(result.exit_code != 0);
  CHECK(result.err.find(std::to_string(processes.back()) + " on ") != std::string::npos);
  CHECK(result.err.find("was killed or ended by itself; finished were ") != std::string::npos);
  CHECK(result.err.find("--resume goes on with them") != std::string::npos);
  CHECK(lines_of(journal) >= 4);

  program::Running again(with(search, {"--resume"}));
  const std::ptrdiff_t before = lines_of(journal);
  while (lines_of(journal) < before + 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  again.signal(SIGINT);
  CHECK(again.finish().exit_code == 130);
}

TEST_CASE("what is wrong with a plan is said once, however many ranks there are") {
  if (!can_start_ranks()) SKIP_WITHOUT(kLauncher);
  const Result result = run(with(kSearch, {"--objective", "beauty"}), ranks(3));
  CHECK(result.exit_code == 2);
  const std::string sentence = "--objective of training is";
  const std::size_t at = result.err.find(sentence);
  REQUIRE(at != std::string::npos);
  CHECK(result.err.find(sentence, at + 1) == std::string::npos);
}
