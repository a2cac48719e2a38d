// ridgepoint plan, as its users meet it.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "tests/app/program.h"
#include "tests/support/catch.h"

using nlohmann::json;
using program::Folder;
using program::Result;
using program::run;

namespace {

using Arguments = std::vector<std::string>;

Arguments with(Arguments arguments, const Arguments& further) {
  arguments.insert(arguments.end(), further.begin(), further.end());
  return arguments;
}

// A space of some hundred candidates.
const Arguments kTraining{"plan",
                          "--model",
                          "tiny-llama",
                          "--gpus",
                          "8",
                          "--global-batch",
                          "16",
                          "--search",
                          "schedule=1f1b,gpipe",
                          "--search",
                          "recompute=none,full",
                          "--search",
                          "vpp=1",
                          "--search",
                          "zero=0,1"};
const Arguments kServing{
    "plan",      "--task",          "generate", "--model",          "llama-3.1-8b", "--implementation",
    "vllm_0.14", "--prompt-length", "512",      "--max-new-tokens", "64",           "--gpus",
    "4"};

json plan_of(const Arguments& arguments) {
  const Result result = run(with(arguments, {"--format", "json"}));
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  return json::parse(result.out);
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What a shell would make of a command without quotes, less the program's name.
Arguments words_of(const std::string& command) {
  std::istringstream stream(command);
  Arguments words{std::istream_iterator<std::string>(stream), {}};
  words.erase(words.begin());
  return words;
}

void check_refusal(const Arguments& arguments, int exit_code, const std::string& message) {
  const Result result = run(arguments);
  CAPTURE(arguments, result.err);
  CHECK(result.exit_code == exit_code);
  CHECK(result.err.find(message) != std::string::npos);
}

}  // namespace

TEST_CASE("a plan counts every candidate as fitting or refused, and its best is best") {
  const json plan = plan_of(kTraining);
  std::int64_t refused = 0;
  for (const auto& [reason, n] : plan["refused"].items()) refused += n.get<std::int64_t>();
  CHECK(plan["candidates"] == plan["looked_at"]);
  CHECK(plan["fitting"].get<std::int64_t>() + refused == plan["looked_at"].get<std::int64_t>());
  REQUIRE(plan["best"].size() == 10);
  for (std::size_t i = 1; i < plan["best"].size(); ++i)
    CHECK(plan["best"][i - 1]["step_s"] <= plan["best"][i]["step_s"]);
  for (const json& c : plan["front"]) CHECK(c["step_s"] >= plan["best"][0]["step_s"]);
}

TEST_CASE("the command that a plan ends in predicts what the plan's comparison said of its winner") {
  const bool training = GENERATE(true, false);
  const json plan = plan_of(training ? kTraining : kServing);
  const json metrics = plan_of(words_of(plan["predict"].get<std::string>()))["metrics"];
  const json& winner = plan["best"][0];
  if (training) {
    // Lists are of estimates; the comparison of the first two is of predictions.
    CHECK(metrics["step_time_s"].get<double>() == Approx(plan["why"]["seconds"]["step"][0].get<double>()));
  } else {
    CHECK(metrics["tpot_ms"].get<double>() == Approx(winner["tpot_ms"].get<double>()));
    CHECK(metrics["ttft_ms"].get<double>() == Approx(winner["ttft_ms"].get<double>()));
  }
}

TEST_CASE("what a flag fixes stays fixed, and --search widens a field") {
  const json fixed = plan_of(with(kTraining, {"--tp", "2", "--micro-batch", "2", "--top", "500"}));
  for (const json& c : fixed["best"]) {
    CHECK(c["tensor_parallel"] == 2);
    CHECK(c["micro_batch_size"] == 2);
  }
  std::set<std::int64_t> devices;
  const json widened = plan_of(with(kTraining, {"--search", "gpus=2,4", "--top", "500"}));
  for (const json& c : widened["best"]) devices.insert(c["devices"].get<std::int64_t>());
  CHECK(devices == std::set<std::int64_t>{2, 4});
}

TEST_CASE("constraints hold for all that is shown") {
  const json all = plan_of(with(kTraining, {"--top", "1000"}));
  const auto& candidates = all["best"];
  const double middle = candidates[candidates.size() / 2]["step_s"].get<double>();
  const json some = plan_of(with(kTraining, {"--top", "1000", "--slowest-step-s", std::to_string(middle)}));
  CHECK(some["fitting"] < all["fitting"]);
  CHECK(some["refused"]["slowest_step"].get<std::int64_t>() + some["fitting"].get<std::int64_t>() ==
        all["fitting"].get<std::int64_t>());
  for (const json& c : some["best"]) CHECK(c["step_s"].get<double>() <= middle);
}

TEST_CASE("a plan that nothing keeps to ends with 3 and the nearest that would do") {
  check_refusal(with(kTraining, {"--slowest-step-s", "1e-6"}), 3, "--slowest-step-s 1e-06: the best is ");
  check_refusal(with(kTraining, {"--most-usd-per-mtok", "1e-9"}), 3,
                "--most-usd-per-mtok 1e-09: the best is ");
  check_refusal(with(kTraining, {"--memory-share", "1e-6"}), 3, "it would fit with --memory-share");
  check_refusal({"plan",
                 "--model",
                 "llama-3.1-70b",
                 "--gpus",
                 "1",
                 "--global-batch",
                 "8",
                 "--search",
                 "recompute=full",
                 "--search",
                 "schedule=1f1b",
                 "--search",
                 "vpp=1",
                 "--search",
                 "micro-batch=1",
                 "--search",
                 "offload-optimizer=false",
                 "--search",
                 "cp=1",
                 "--search",
                 "shard-group=0",
                 "--search",
                 "zero=0,3"},
                3, "something fits (--gpus ");
  check_refusal(with(kServing, {"--most-tpot-ms", "0.01"}), 3, "--most-tpot-ms 0.01: the best is ");
  check_refusal({"plan", "--task", "generate", "--model", "llama-3.1-70b", "--implementation", "vllm_0.14",
                 "--gpus", "1"},
                3, "something fits (--gpus ");
  check_refusal(with(kServing, {"--requests-per-second", "2000", "--minutes", "0.2"}), 3,
                "devices can (--gpus ");
}

TEST_CASE("what a plan's flags cannot mean is a usage error that says what would be accepted") {
  check_refusal({"plan", "--model", "tiny-llama"}, 2, "--gpus says how many devices");
  check_refusal(with(kTraining, {"--search", "tpp=1"}), 2, "of training there are gpus, global-batch");
  check_refusal(with(kTraining, {"--search", "tp"}), 2, "--search takes FIELD=VALUE,VALUE");
  check_refusal(with(kTraining, {"--search", "recompute=some"}), 2, "none, selective, full");
  check_refusal(with(kTraining, {"--search", "cp=0"}), 2, "whole numbers of 1 or more");
  check_refusal(with(kTraining, {"--objective", "beauty"}), 2, "time, memory, money or energy");
  check_refusal(with(kTraining, {"--memory-share", "1.5"}), 2,
                "--memory-share must be above 0 and at most 1");
  check_refusal(with(kTraining, {"--most-tpot-ms", "5"}), 2, "--most-tpot-ms is of generation");
  check_refusal(with(kTraining, {"--resume"}), 2, "--journal says which");
  check_refusal(with(kTraining, {"--dp", "4"}), 2, "--dp is what the other degrees leave");
  check_refusal(with(kServing, {"--objective", "time"}), 2, "throughput, latency, money or energy");
  check_refusal({"plan", "--task", "generate", "--model", "llama-3.1-8b", "--gpus", "4"}, 2,
                "is no inference engine");
}

TEST_CASE("a plan is text, CSV and Markdown too, and says the same") {
  const json plan = plan_of(kTraining);
  const Result csv = run(with(kTraining, {"--format", "csv"}));
  CHECK(csv.out.rfind("list,rank,devices,data_parallel", 0) == 0);
  const auto lines = std::count(csv.out.begin(), csv.out.end(), '\n');
  CHECK(lines == static_cast<std::ptrdiff_t>(1 + plan["best"].size() + plan["front"].size()));
  for (const char* format : {"text", "md"}) {
    const Result result = run(with(kTraining, {"--format", format}));
    CHECK(result.exit_code == 0);
    CHECK(result.out.find(plan["predict"].get<std::string>()) != std::string::npos);
    CHECK(result.out.find(plan["why"]["sentence"].get<std::string>()) != std::string::npos);
  }
}

TEST_CASE("ranges, threads and a journal that is taken up again do not change a plan") {
  const Folder folder;
  const Result whole = run(kTraining);
  REQUIRE(whole.exit_code == 0);
  CHECK(run(with(kTraining, {"--range", "37", "--threads", "3"})).out == whole.out);

  const std::string journal = folder.path("journal.ndjson");
  const Arguments kept = with(kTraining, {"--range", "97", "--journal", journal});
  CHECK(run(kept).out == whole.out);
  // As if it had been killed in the middle of a line.
  const std::string all = text_of(journal);
  const std::string part = all.substr(0, all.size() / 2);
  std::ofstream(journal) << part;
  CHECK(run(with(kept, {"--resume"})).out == whole.out);
  const auto lines = [](const std::string& text) {
    std::istringstream stream(text);
    std::multiset<std::string> found;
    for (std::string line; std::getline(stream, line);) found.insert(line);
    return found;
  };
  CHECK(lines(text_of(journal)) == lines(all));
}

TEST_CASE("a journal of another search is refused with its name") {
  const Folder folder;
  const std::string journal = folder.path("journal.ndjson");
  REQUIRE(run(with(kTraining, {"--journal", journal})).exit_code == 0);
  check_refusal(with(kTraining, {"--journal", journal}), 4, "--resume goes on with it");
  check_refusal(with(kTraining, {"--journal", journal, "--resume", "--memory-share", "0.9"}), 4,
                "is the journal of another search");
}

TEST_CASE("an interrupted plan prints what it found until then and ends with 130") {
  // Larger than could be done: every strategy of a large model.
  const Folder folder;
  const std::string journal = folder.path("journal.ndjson");
  program::Running search({"plan", "--model", "gpt2-1558m", "--gpus", "1024", "--global-batch", "1k",
                           "--range", "100", "--journal", journal});
  const auto lines = [&] {
    const std::string text = text_of(journal);
    return std::count(text.begin(), text.end(), '\n');
  };
  while (lines() < 3) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  search.signal(SIGINT);
  const Result result = search.finish();
  CHECK(result.exit_code == 130);
  CHECK(result.err.find("interrupted; finished were ") != std::string::npos);
  CHECK(result.out.find("Stopped before the end") != std::string::npos);
}

TEST_CASE(
    "an interrupted plan tells what its journal keeps from what only its table has of a range half done") {
  // Ranges that take long enough to be interrupted inside the second.
  constexpr std::int64_t kRange = 10'000'000;
  const Folder folder;
  const std::string journal = folder.path("journal.ndjson");
  program::Running search({"plan", "--model", "llama-3.1-405b", "--gpus", "16384", "--seq-len", "8k",
                           "--global-batch", "2048", "--threads", "1", "--range", std::to_string(kRange),
                           "--journal", journal, "--format", "json"});
  const auto finished = [&] {
    const std::string text = text_of(journal);
    return std::count(text.begin(), text.end(), '\n') - 1;  // below the header
  };
  while (finished() < 1) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  search.signal(SIGINT);
  const Result result = search.finish();
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 130);
  const json plan = json::parse(result.out);
  CHECK(plan["complete"] == false);

  std::string sentence = result.err.substr(result.err.rfind("ridgepoint: interrupted; "));
  sentence.erase(std::remove(sentence.begin(), sentence.end(), ','), sentence.end());
  long long ranges = 0, kept = 0, begun = 0;
  REQUIRE(std::sscanf(sentence.c_str(), "ridgepoint: interrupted; finished were %lld of %*d ranges %lld",
                      &ranges, &kept) == 2);
  const std::string resume = "--resume goes on with them; ";
  CHECK(sentence.find("which " + journal + " keeps: " + resume) != std::string::npos);
  REQUIRE(std::sscanf(sentence.c_str() + sentence.find(resume) + resume.size(),
                      "%lld candidates of a range that was begun", &begun) == 1);
  CHECK(sentence.find("are in the table too but not in the journal\n") != std::string::npos);
  CHECK(ranges == finished());
  CHECK(kept == ranges * kRange);
  CHECK(begun < kRange);
  CHECK(kept + begun == plan["looked_at"]);
}

TEST_CASE("a sweep ends in a row for each combination, each with the winner of its own plan") {
  const Folder folder;
  const std::string file = folder.write(
      "sweep.json",
      R"({"schema_version": 1, "vary": {"hardware": ["h100-sxm", "a100-sxm-80gb"], "gpus": [4, "8"]}})");
  const json sweep = plan_of(with(kTraining, {"--sweep", file}));
  REQUIRE(sweep["searches"].size() == 4);
  const json& last = sweep["searches"][3];
  CHECK(last["variation"] == json({{"hardware", "a100-sxm-80gb"}, {"gpus", "8"}}));
  const json alone = plan_of(with(kTraining, {"--hardware", "a100-sxm-80gb"}));
  CHECK(last["best"] == alone["best"]);
  CHECK(last["candidates"] == alone["candidates"]);

  const Result csv = run(with(kTraining, {"--sweep", file, "--format", "csv"}));
  CHECK(std::count(csv.out.begin(), csv.out.end(), '\n') == 5);
  CHECK(csv.out.rfind("hardware,gpus,candidates,fitting,why_not,devices", 0) == 0);
  CHECK(run(with(kTraining, {"--sweep", file})).exit_code == 0);
}

TEST_CASE("of a sweep the combinations that cannot be say why, in their place") {
  const Folder folder;
  const std::string file =
      folder.write("sweep.json", R"({"schema_version": 1, "vary": {"seq-len": ["64", "1G"]}})");
  const json sweep = plan_of(with(kTraining, {"--sweep", file}));
  CHECK(sweep["searches"][0]["fitting"] > 0);
  CHECK(sweep["searches"][1]["why_not"].get<std::string>().find("workload.seq_len") != std::string::npos);
}

TEST_CASE("a sweep's file that is not what it should be is refused with file and field") {
  const Folder folder;
  const auto refuse = [&](const std::string& content, const std::string& message) {
    check_refusal(with(kTraining, {"--sweep", folder.write("sweep.json", content)}), 4, message);
  };
  refuse("[]", "sweep.json is no JSON object");
  refuse(R"({"vary": {"gpus": [1]}})", "schema_version: must be 1");
  refuse(R"({"schema_version": 1})", "vary: must be an object");
  refuse(R"({"schema_version": 1, "vary": {"gpus": [1, 2, "1"]}})", "vary.gpus: \"1\" is there twice");
  refuse(R"({"schema_version": 1, "vary": {"gpu": [1]}})",
         "vary.gpu: is not known; there are scenario, model");
  refuse(R"({"schema_version": 1, "vary": {"gpus": []}})", "vary.gpus: must be a list");
  refuse(R"({"schema_version": 1, "vary": {"gpus": [1.5]}})", "gpus takes a whole number");
  refuse(R"({"schema_version": 1, "vary": {"hardware": ["h100-sxn"]}})", "h100-sxm");
  check_refusal(with(kTraining, {"--sweep", folder.path("none.json")}), 4, "does not exist");
}
