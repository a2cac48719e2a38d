// ridgepoint train and generate over several ranks, which they start themselves.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/app/program.h"
#include "tests/support/catch.h"

using program::Folder;
using program::Result;
using program::run;

namespace {

using Arguments = std::vector<std::string>;

const Arguments kTrain{"train",         "--model", "tiny-llama",     "--seq-len", "32",
                       "--micro-batch", "1",       "--global-batch", "4"};

Arguments with(Arguments arguments, const Arguments& further) {
  arguments.insert(arguments.end(), further.begin(), further.end());
  return arguments;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// That nobody listens at.
std::string free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  const auto any = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(bind(socket, any, length) == 0);
  REQUIRE(getsockname(socket, any, &length) == 0);
  close(socket);
  return std::to_string(ntohs(address.sin_port));
}

// The process of a rank in the run that has this argument; 0 where there is none.
pid_t process_of_rank(int rank, const std::string& argument) {
  std::error_code ignored;
  const std::string variable = "RIDGEPOINT_RANK=" + std::to_string(rank) + '\0';
  for (const auto& process : std::filesystem::directory_iterator("/proc", ignored))
    if (text_of(process.path() / "cmdline").find(argument) != std::string::npos &&
        text_of(process.path() / "environ").find(variable) != std::string::npos)
      return static_cast<pid_t>(std::atoi(process.path().filename().c_str()));
  return 0;
}

}  // namespace

TEST_CASE("Four ranks that train starts itself have one process's losses, and rows of each rank") {
  const Arguments steps{"--steps", "3", "--format", "json"};
  const Result one = run(with(kTrain, steps));
  const Result four = run(with(with(kTrain, {"--tp", "2", "--pp", "2", "--dp", "1"}), steps));
  REQUIRE(one.exit_code == 0);
  INFO(four.err);
  REQUIRE(four.exit_code == 0);
  CHECK(four.err.find("4 ranks on ") != std::string::npos);
  const auto a = nlohmann::json::parse(one.out).at("report"),
             b = nlohmann::json::parse(four.out).at("report");
  REQUIRE(b.at("steps").size() == 3);
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(b["steps"][i]["loss"].get<double>() == Approx(a["steps"][i]["loss"].get<double>()).epsilon(1e-5));
  std::set<int> ranks;
  for (const auto& row : b.at("rows")) ranks.insert(row.at("rank").get<int>());
  CHECK(ranks == std::set<int>{0, 1, 2, 3});
}

TEST_CASE("Ranks that were started, but not as many as the degrees say, are a usage error") {
  const Result result =
      run(with(kTrain, {"--tp", "4"}), {"env", "RANK=0", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2"});
  CHECK(result.exit_code == 2);
  CHECK(result.err.find("2 ranks were started, but --tp 4") != std::string::npos);
}

TEST_CASE("A rank that is killed is named, all others end, and other ranks resume from the checkpoint") {
  const Folder folder;
  const std::string checkpoint = folder.path("run");
  const Arguments kept = with(kTrain, {"--checkpoint", checkpoint, "--checkpoint-every", "1", "--stream"});
  program::Running running(with(kept, {"--tp", "2", "--pp", "2", "--steps", "100000"}));
  REQUIRE(running.wait_for("\"event\":\"checkpoint\""));
  const pid_t rank_2 = process_of_rank(2, checkpoint);
  REQUIRE(rank_2 > 0);
  REQUIRE(kill(rank_2, SIGKILL) == 0);
  const Result result = running.finish();
  CHECK(result.exit_code == 6);
  CHECK(result.err.find("rank 2 was killed by signal 9") != std::string::npos);
  for (int rank = 0; rank < 4; ++rank) CHECK(process_of_rank(rank, checkpoint) == 0);

  const std::string index = text_of(checkpoint + "/model.safetensors.index.json");
  const auto step = nlohmann::json::parse(index).at("metadata").at("step").get<std::int64_t>();
  const Result resumed =
      run(with(kept, {"--dp", "2", "--zero", "1", "--resume", "--steps", std::to_string(step + 1)}));
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK(resumed.out.find("\"step\":" + std::to_string(step + 1)) != std::string::npos);
}

namespace {

// As torchrun starts a rank on each of two machines; both are this one.
Arguments on_machine(int rank, const std::string& port) {
  return {"env",
          "RANK=" + std::to_string(rank),
          "WORLD_SIZE=2",
          "LOCAL_RANK=0",
          "LOCAL_WORLD_SIZE=1",
          "MASTER_ADDR=127.0.0.1",
          "MASTER_PORT=" + port};
}

}  // namespace

TEST_CASE("Ranks of two machines, as torchrun starts them, meet by TCP and have one process's losses") {
  const std::string port = free_port();
  const Arguments steps{"--tp", "2", "--steps", "3", "--format", "json"};
  program::Running second(with(kTrain, steps), on_machine(1, port));
  const Result first = run(with(kTrain, steps), on_machine(0, port));
  INFO(first.err);
  REQUIRE(first.exit_code == 0);
  CHECK(second.finish().exit_code == 0);
  const Result one = run(with(kTrain, {"--steps", "3", "--format", "json"}));
  const auto a = nlohmann::json::parse(one.out).at("report"),
             b = nlohmann::json::parse(first.out).at("report");
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(b["steps"][i]["loss"].get<double>() == Approx(a["steps"][i]["loss"].get<double>()).epsilon(1e-5));
}

TEST_CASE("A rank that is killed on another machine is named on this one") {
  const std::string port = free_port();
  const Arguments train = with(kTrain, {"--dp", "2", "--steps", "100000", "--stream"});
  program::Running first(train, on_machine(0, port)), second(train, on_machine(1, port));
  REQUIRE(first.wait_for("\"event\":\"step\""));
  second.signal(SIGKILL);
  const Result result = first.finish();
  CHECK(result.exit_code == 6);
  CHECK(result.err.find("rank 1 ended: its process is no more") != std::string::npos);
}

TEST_CASE("Two ranks that generate starts itself say one process's tokens") {
  const Arguments generate{"generate", "--model",          "tiny-llama", "--prompt-tokens",
                           "1,2,3",    "--max-new-tokens", "8",          "--format",
                           "json"};
  const Result one = run(generate), two = run(with(generate, {"--tp", "2"}));
  INFO(two.err);
  REQUIRE(one.exit_code == 0);
  REQUIRE(two.exit_code == 0);
  const auto tokens = nlohmann::json::parse(one.out).at("tokens");
  CHECK(tokens.size() == 8);
  CHECK(nlohmann::json::parse(two.out).at("tokens") == tokens);
}
