// stdout carries the result alone, in the format that was asked for.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "sim/format.h"
#include "sim/report/events.h"
#include "sim/report/metrics.h"
#include "sim/report/step_parts.h"
#include "tests/app/program.h"
#include "tests/support/catch.h"

using nlohmann::json;
using program::Folder;
using program::Result;
using program::run;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

json json_of(const Result& result) {
  CAPTURE(result.out, result.err);
  REQUIRE(result.exit_code == 0);
  return json::parse(result.out);  // throws if anything else is on stdout
}

sim::Report report_of(const json& envelope) {
  return sim::report_from_json(envelope.at("report").dump(), "stdout");
}

const std::vector<std::string> kPredict = {"predict",       "--model",   "gpt2-124m", "--hardware",
                                           "a100-sxm-80gb", "--seq-len", "512"};

Result predict_with(std::vector<std::string> more) {
  std::vector<std::string> arguments = kPredict;
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run(arguments);
}

}  // namespace

TEST_CASE("a predicted report comes with totals that are functions of it") {
  const Result result = predict_with({"--format", "json"});
  CHECK(result.err.empty());
  const json envelope = json_of(result);
  const sim::Report report = report_of(envelope);
  CHECK(envelope.at("schema_version") == sim::kReportSchemaVersion);
  const json& metrics = envelope.at("metrics");
  CHECK(metrics.at("step_time_s").get<double>() == Approx(sim::step_time(report).value));
  CHECK(metrics.at("tokens_per_s").get<double>() == Approx(sim::tokens_per_second(report)));
  CHECK(metrics.at("hfu").get<double>() == Approx(sim::hfu(report)));
  CHECK(metrics.at("fits").get<bool>() == sim::fits(report));
  std::int64_t ledger = 0;
  for (const json& line : envelope.at("report").at("memory")) ledger += line.at("bytes").get<std::int64_t>();
  CHECK(ledger == metrics.at("peak_memory_bytes").get<std::int64_t>());
}

TEST_CASE("text, CSV and Markdown tell of the same operations as JSON") {
  const sim::Report report = report_of(json_of(predict_with({"--format", "json"})));
  const std::vector<std::string> csv = lines_of(predict_with({"--format", "csv"}).out);
  CHECK(csv.size() == report.rows.size() + 1);
  const std::string markdown = predict_with({"--format", "md"}).out;
  const std::string text = predict_with({}).out;
  for (const sim::Row& row : report.rows) {
    CAPTURE(row.id);  // which may do a neighbour, too
    const bool told = markdown.find("| " + row.id + " |") != std::string::npos ||
                      markdown.find("| " + row.id + " + ") != std::string::npos;
    CHECK(told);
  }
  const auto longest = std::max_element(report.rows.begin(), report.rows.end(),
                                        [](const auto& a, const auto& b) { return a.duration < b.duration; });
  CHECK(text.find(longest->id) != std::string::npos);
  CHECK(text.find(sim::bottleneck_sentence(report)) != std::string::npos);
}

TEST_CASE("of a pipeline, text and Markdown tell each operation once, as the mean of the stages") {
  const std::vector<std::string> of_stages = {"--pp", "4", "--global-batch", "8", "--micro-batch", "1"};
  const auto as = [&](const char* format) {
    std::vector<std::string> more = of_stages;
    more.insert(more.end(), {"--format", format});
    return predict_with(more);
  };
  const sim::Report report = report_of(json_of(as("json")));
  const std::string id = "layer.mlp.up.backward_weight";
  sim::Flops flops;
  int stages = 0;
  for (const sim::Row& row : report.rows)
    if (row.id == id) flops += row.flops, ++stages;
  REQUIRE(stages == 4);
  const std::string mean = sim::format(sim::Flops{flops.value / 4});
  const std::string begin = "| " + id + " |";
  int told = 0;
  for (const std::string& line : lines_of(as("md").out))
    if (line.rfind(begin, 0) == 0) {
      ++told;
      CAPTURE(line, mean);
      CHECK(line.find(mean) != std::string::npos);
    }
  CHECK(told == 1);
  CHECK(as("text").out.find("one rank, the mean of 4 stages") != std::string::npos);
}

TEST_CASE("shares of operations are of the step, as those of its parts are") {
  const std::vector<std::string> of_stages = {"--pp", "4", "--global-batch", "8", "--micro-batch", "1"};
  const auto as = [&](const char* format) {
    std::vector<std::string> more = of_stages;
    more.insert(more.end(), {"--format", format});
    return predict_with(more);
  };
  const sim::StepParts parts = sim::step_parts(report_of(json_of(as("json"))));
  double compute = 0, bubble = 0, rounding = 0;  // hundredths
  for (const std::string& line : lines_of(as("md").out)) {
    const std::size_t end = line.find(" % |");  // no column but the shares' has percents
    if (end == std::string::npos) continue;
    const double share = std::stod(line.substr(line.rfind('|', end) + 1));
    if (line.find("| compute |") != std::string::npos) compute += share;
    if (line.find("| bubble |") != std::string::npos) bubble += share;
    rounding += 0.06;
  }
  CHECK(bubble > 5);
  CHECK(bubble <= 100 * parts.share(sim::StepPart::bubble) + rounding);
  CHECK(compute == Approx(100 * parts.share(sim::StepPart::compute)).margin(rounding));
}

TEST_CASE("a micro-batch alone is the global batch too") {
  const sim::Workload work =
      report_of(json_of(predict_with({"--micro-batch", "2", "--format", "json"}))).source.scenario.workload;
  CHECK(work.micro_batch_size == 2);
  CHECK(work.global_batch_size == 2);
}

TEST_CASE("8k tokens are 8,192") {
  const Result result = run({"predict", "--model", "smollm2-135m", "--seq-len", "8k", "--format", "json"});
  CHECK(report_of(json_of(result)).source.scenario.workload.seq_len == 8192);
}

TEST_CASE("a flag of generation makes the prediction one of generation") {
  const json envelope =
      json_of(predict_with({"--prompt-length", "16", "--max-new-tokens", "8", "--format", "json"}));
  const sim::Report report = report_of(envelope);
  CHECK(report.source.scenario.workload.task == sim::Task::generate);
  REQUIRE(sim::ttft(report).has_value());
  CHECK(envelope.at("metrics").at("ttft_s").get<double>() == Approx(sim::ttft(report)->value));
}

TEST_CASE("what does not fit is predicted, said and told by the exit code") {
  const Result result =
      run({"predict", "--model", "llama-3.1-70b", "--hardware", "h100-sxm", "--format", "json"});
  CHECK(result.exit_code == 3);
  CHECK(result.err.find("does not fit") != std::string::npos);
  CHECK(json::parse(result.out).at("metrics").at("fits") == false);
}

TEST_CASE("a scenario that was written predicts the same when it is read") {
  const Folder folder;
  const json first = json_of(predict_with({"--format", "json"}));
  const std::string file =
      folder.write("scenario.json", first.at("report").at("source").at("scenario").dump());
  CHECK(json_of(run({"predict", "--scenario", file, "--format", "json"})) == first);
}

TEST_CASE("a batch answers line by line in order, and a bad line in its place") {
  const Folder folder;
  json scenario = json_of(predict_with({"--format", "json"})).at("report").at("source").at("scenario");
  std::string lines;
  for (const int seq_len : {128, 256}) {
    scenario["workload"]["seq_len"] = seq_len;
    lines += scenario.dump() + "\n";
    if (seq_len == 128) lines += "{\"model\":\"no-such-model\"}\n";
  }
  const std::string file = folder.write("batch.ndjson", lines);

  const Result result = run({"predict", "--batch", file, "--format", "json"});
  CHECK(result.exit_code == 4);
  const std::vector<std::string> answers = lines_of(result.out);
  REQUIRE(answers.size() == 3);
  CHECK(report_of(json::parse(answers[0])).source.scenario.workload.seq_len == 128);
  CHECK(json::parse(answers[1]).at("error").get<std::string>().find("no-such-model") != std::string::npos);
  CHECK(report_of(json::parse(answers[2])).source.scenario.workload.seq_len == 256);

  const std::vector<std::string> csv = lines_of(run({"predict", "--batch", file, "--format", "csv"}).out);
  REQUIRE(csv.size() == 4);
  const auto columns = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  CHECK(columns(csv[1]) == columns(csv[0]));
  CHECK(csv[2].find("no-such-model") != std::string::npos);
}

TEST_CASE("two reports join by operation, whatever they are wrapped in") {
  const Folder folder;
  const json envelope = json_of(predict_with({"--format", "json"}));
  const std::string wrapped = folder.write("wrapped.json", envelope.dump());
  const std::string bare = folder.write("bare.json", envelope.at("report").dump());
  const std::size_t rows = report_of(envelope).rows.size();
  const Result result = run({"compare", wrapped, bare});
  CHECK(result.exit_code == 0);
  const std::string count = std::to_string(rows);
  CAPTURE(result.out);
  CHECK(result.out.find(count + " of " + count + " B's operations are joined with A's ones, " + count +
                        " of " + count + " the reverse.") != std::string::npos);
}

TEST_CASE("a run's planned memory is what was predicted, to the byte, and its operations join both ways") {
  const Folder folder;
  const std::string dtype = GENERATE("fp32", "fp8");
  CAPTURE(dtype);
  const std::vector<std::string> scenario = {"--model",       "tiny-llama", "--seq-len", "32",
                                             "--micro-batch", "2",          "--dtype",   dtype};
  std::vector<std::string> predict = {"predict", "--hardware", "this-machine", "--format", "json"};
  std::vector<std::string> train = {"train", "--steps", "2", "--format", "json"};
  predict.insert(predict.end(), scenario.begin(), scenario.end());
  train.insert(train.end(), scenario.begin(), scenario.end());
  const std::string predicted = folder.write("predicted.json", json_of(run(predict)).dump());
  const std::string measured = folder.write("measured.json", json_of(run(train)).dump());
  const Result result = run({"compare", predicted, measured});
  CAPTURE(result.out, result.err);
  CHECK(result.out.find("equal to the byte") != std::string::npos);
  CHECK(result.out.find(", 0 only predicted, 0 only measured") != std::string::npos);
}

TEST_CASE("any bytes survive tokenizing and detokenizing") {
  const Folder folder;
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += static_cast<char>(i * 37 + i / 256);
  const std::string file = folder.write("bytes", bytes);
  std::string ids = run({"tokenize", "--model", "tiny-llama", "--file", file}).out;
  ids.pop_back();  // the line's end
  CHECK(run({"tokenize", "--model", "tiny-llama", "--ids", ids}).out == bytes);
}

TEST_CASE("a run's stream folds into the report of a step, and its events have the published shape") {
  const Folder folder;
  const std::string record = folder.path("events.ndjson");
  const Result result =
      run({"train", "--model", "tiny-llama", "--seq-len", "32", "--micro-batch", "2", "--global-batch", "4",
           "--measure-noise", "--steps", "3", "--stream", "--record", record});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  const json schema = json_of(run({"schema", "event"}));
  sim::Report report;
  std::int64_t steps = 0;
  for (const std::string& line : lines_of(result.out)) {
    sim::apply(report, sim::event_from_ndjson(line));
    const json event = json::parse(line);
    if (event.at("event") == "step") {
      CHECK(event.at("step") == ++steps);
      CHECK(event.at("loss").is_number());
      CHECK(event.at("grad_norm").is_number());
      CHECK(event.at("micro_batch_grad_norm").is_number());
    }
    const auto kind =
        std::find_if(schema.at("oneOf").begin(), schema.at("oneOf").end(), [&](const json& candidate) {
          return candidate.at("properties").at("event").at("const") == event.at("event");
        });
    REQUIRE(kind != schema.at("oneOf").end());
    for (const auto& [key, value] : event.items()) {
      CAPTURE(line, key);
      CHECK(kind->at("properties").contains(key));
    }
  }
  CHECK(steps == 3);
  CHECK(report.rows.size() > 0);
  std::ifstream recorded(record);
  CHECK(std::string(std::istreambuf_iterator<char>(recorded), {}) == result.out);
}

TEST_CASE("generated tokens do not depend on the KV cache") {
  const std::vector<std::string> generate = {"generate", "--model",          "tiny-llama", "--prompt-tokens",
                                             "1,2,3",    "--max-new-tokens", "8",          "--temperature",
                                             "0",        "--ignore-eos",     "--format",   "json"};
  std::vector<std::string> without = generate;
  without.push_back("--no-kv-cache");
  const json tokens = json_of(run(generate)).at("tokens");
  CHECK(tokens.size() == 8);
  CHECK(json_of(run(without)).at("tokens") == tokens);
}

TEST_CASE("an interrupted run writes what it has and says so by its exit code") {
  program::Running running(
      {"train", "--model", "tiny-llama", "--seq-len", "32", "--steps", "1000000", "--stream"});
  REQUIRE(running.wait_for("\"event\":\"step\""));
  running.signal(SIGINT);
  const Result result = running.finish();
  CHECK(result.exit_code == 130);
  sim::Report report;
  for (const std::string& line : lines_of(result.out)) sim::apply(report, sim::event_from_ndjson(line));
  CHECK(report.steps.size() > 0);
  CHECK(!report.message.empty());
}
