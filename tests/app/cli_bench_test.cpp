// ridgepoint bench: rows that say what was reached and what was predicted, in every format.
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/app/program.h"
#include "tests/support/catch.h"

using nlohmann::json;
using program::Result;
using program::run;

namespace {

const std::vector<std::string> kQuick = {"bench",       "gemm",
                                         "attention",   "norm",
                                         "copy",        "launch",
                                         "decode",      "--gemm",
                                         "96x48x32",    "--attention",
                                         "1x64x4x2x16", "--norm",
                                         "64x48",       "--copy",
                                         "1",           "--launches",
                                         "5",           "--prompt-length",
                                         "4",           "--max-new-tokens",
                                         "4",           "--seconds",
                                         "0.001"};

Result bench_with(std::vector<std::string> more) {
  std::vector<std::string> arguments = kQuick;
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run(arguments);
}

}  // namespace

TEST_CASE(
    "bench's rows have a time, what was reached of the peak, and a prediction, and agree with themselves") {
  const Result result = bench_with({"--format", "json"});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  const json document = json::parse(result.out);
  std::vector<std::string> kinds;
  for (const json& row : document.at("rows")) {
    CAPTURE(row.dump());
    kinds.push_back(row.at("what").get<std::string>());
    const double median = row.at("median_seconds").get<double>();
    CHECK(row.at("least_seconds").get<double>() > 0);
    CHECK(median >= row.at("least_seconds").get<double>());
    CHECK(row.at("predicted_seconds").get<double>() > 0);
    if (kinds.back() == "launch") continue;
    const bool compute = row.at("bound_by") == "compute";
    const double work = compute ? row.at("flops").get<double>() : row.at("memory_bytes").get<double>();
    CHECK(row.at("rate_per_s").get<double>() == Approx(work / median).epsilon(1e-3));
    CHECK(row.at("share_of_peak").get<double>() > 0);
  }
  const std::vector<std::string> expected = {"gemm", "gemm", "gemm", "attention", "attention",
                                             "norm", "norm", "copy", "launch",    "decode"};
  CHECK(kinds == expected);
  // By their definitions: 2 M N K operations; a copy reads and writes its bytes.
  const json& rows = document.at("rows");
  CHECK(rows[0].at("flops") == 2.0 * 96 * 48 * 32);
  CHECK(rows[7].at("memory_bytes") == 2 << 20);
}

TEST_CASE("bench writes the same rows as text, CSV and Markdown") {
  for (const char* const format : {"text", "csv", "md"}) {
    const Result result = run({"bench", "norm", "--norm", "64x48", "--seconds", "0.001", "--format", format});
    CAPTURE(format, result.out, result.err);
    REQUIRE(result.exit_code == 0);
    CHECK(result.out.find("64 x 48, forward") != std::string::npos);
    CHECK(result.out.find("64 x 48, backward") != std::string::npos);
  }
}

TEST_CASE("bench names the flag whose value means nothing, and what a device has not") {
  const auto fails = [](std::vector<std::string> arguments, int code, const std::string& sentence) {
    arguments.insert(arguments.begin(), "bench");
    const Result result = run(arguments);
    CAPTURE(result.out, result.err);
    CHECK(result.exit_code == code);
    CHECK(result.err.find(sentence) != std::string::npos);
  };
  fails({"gem"}, 2, "bench measures gemm, attention, norm, copy, launch, graph-launch, decode, not \"gem\"");
  fails({"--gemm", "8x8"}, 2, "--gemm is MxNxK, each at least 1, not \"8x8\"");
  fails({"--norm", "8x0"}, 2, "--norm is rows x columns");
  fails({"--attention", "1x8x3x2x16"}, 2, "3 heads are no multiple of 2 key-value heads");
  fails({"--max-new-tokens", "1"}, 2, "--max-new-tokens is at least 2");
  fails({"graph-launch"}, 5, "graph-launch is for GPUs");
  fails({"gemm", "--dtype", "tf32"}, 5, "forms no matrix products in tf32");
}
