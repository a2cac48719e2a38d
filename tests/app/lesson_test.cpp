// Lessons: expressions with units, what is wrong with a file, and every lesson that is shipped.
#include <algorithm>
#include <set>

#include "app/gui/desktop.h"
#include "app/lesson/play.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"
#include "tests/support/catch.h"

using namespace app::lesson;

namespace {

double number(const std::string& expression, const sim::Scenario& scenario = {}) {
  Predictions predictions;
  return Expression(expression).value({scenario, predictions}).number;
}

std::string error_of(const std::string& expression) {
  try {
    const Expression wrong(expression);
  } catch (const ExpressionError& error) {
    return error.what();
  }
  return "nothing";
}

// A lesson of one step with these lines.
Lesson lesson_with(const std::string& lines) {
  return parse_lesson(
      "---\ntitle: T\nchapter: C\nminutes: 1\nsystems: 2\nscenario: train-llama-3.1-8b-h100\n---\n\n## S\n" +
          lines,
      "here.md");
}
std::string refusal_of(const std::string& lines) {
  try {
    lesson_with(lines);
  } catch (const sim::PresetError& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("an expression that nests without end is refused by its length, before anything recurses") {
  constexpr std::size_t kMany = 500'000;
  std::string sum = "1";
  for (std::size_t i = 0; i < kMany; ++i) sum += "+1";
  for (const std::string& endless :
       {std::string(kMany, '(') + "1" + std::string(kMany, ')'), std::string(kMany, '-') + "1", sum}) {
    CHECK_THAT(error_of(endless), Catch::Matchers::EndsWith("bytes, where at most 1000 are accepted"));
    CHECK_THAT(refusal_of(":ask How many?\n:answer " + endless + "\n:choice 3"),
               Catch::Matchers::StartsWith("here.md:11: "));
  }
  CHECK(number(std::string(400, '(') + "1" + std::string(400, ')')) == 1);
}

TEST_CASE("an expression computes as arithmetic does, with units") {
  CHECK(number("2 + 3 * 4") == 14);
  CHECK(number("(2 + 3) * 4 - 1") == 19);
  CHECK(number("2 ^ 10 / 4") == 256);
  CHECK(number("10 - 3 - 2") == 5);
  CHECK(number("64 / 4 / 2") == 8);
  CHECK(number("-2 + 5") == 3);
  CHECK(number("80 GiB / 1 MiB") == 80 * 1024);
  CHECK(number("1.5M tokens / 500 tokens/s / 1 h") == Approx(1.5e6 / 500 / 3600));
  CHECK(number("40 % < 0.5") == 1);
  CHECK(number("3 >= 4") == 0);
  CHECK(text({3.6e6, Dimension::of(Dimension::joules)}) == "1 kWh");
  CHECK(Expression("1 GB / 2 s").dimension() ==
        Dimension::of(Dimension::bytes) / Dimension::of(Dimension::seconds));
}

TEST_CASE("units that do not agree are refused, and so is what is not understood") {
  CHECK_THAT(error_of("1 s + 1 bytes"), contains("s and bytes cannot be added or compared"));
  CHECK_THAT(error_of("peak_memory < 3 ms"), contains("bytes and s"));
  CHECK_THAT(error_of("2 ^ 1 s"), contains("without a unit"));
  CHECK_THAT(error_of("3 +"), contains("missing at the end"));
  CHECK_THAT(error_of("(3"), contains("\")\" is missing"));
  CHECK_THAT(error_of("peak_memry"), contains("peak_memory"));
  CHECK_THAT(error_of("3 parsecs"), contains("\"parsecs\" is no unit; there are k, M, "));
  CHECK_THAT(error_of("mfu hfu"), contains("\"hfu\" is not understood: an operator or a comma is missing"));
  CHECK_THAT(error_of("mfu @ full"), contains("PATH=VALUE"));
}

TEST_CASE("quantities of a lesson are those of the report, and @ is the scenario with fields changed") {
  const sim::Scenario s = sim::load_scenario_preset("train-llama-3.1-8b-h100");
  Predictions predictions;
  const Situation situation{s, predictions};
  const auto of = [&](const char* expression) { return Expression(expression).value(situation).number; };
  CHECK(of("peak_memory") == static_cast<double>(sim::peak_memory(situation.report()).value));
  CHECK(of("tokens_per_second * step_time") == Approx(of("tokens")).epsilon(1e-9));
  CHECK(of("(mfu @ strategy.recompute=full) - mfu") < 0);
  CHECK(of("peak_memory @ strategy.recompute=full, workload.seq_len=1024") < of("peak_memory"));
  CHECK(of("(layers @ model=gpt2-124m) * 1") == 12);
  // The words and the numbers of a formula keep the parentheses that matter.
  const Expression formula("(step_time + step_time) / (step_time - 0 s)");
  CHECK(formula.in_words() == "(step + step) / (step - 0 s)");
  CHECK_THAT(formula.in_numbers(situation), contains(" + "));
}

TEST_CASE("an expression is written as it asks for, and changes of fields as words that the room reads") {
  const Lesson lesson = lesson_with(
      ":table peak_memory / capacity|percent for workload.seq_len: 1024, 8192\n"
      ":formula step_time @ workload.seq_len=8192, strategy.sequence_parallel=false\n"
      ":plot mfu over workload.seq_len from 1k to 4k\n"
      ":plot mfu over workload.seq_len from 1k to 4k for strategy.recompute: none, full");
  Predictions predictions;
  const ShownStep shown = show(lesson, 0, scenario_at(lesson, 0), predictions);
  const auto& table = std::get<ShownTable>(shown.blocks[0]);
  CHECK(table.columns[0] == "seq len, tokens");
  CHECK(table.rows[1][0] == "8,192");
  CHECK_THAT(table.rows[1][1], contains(" %"));
  CHECK(std::get<ShownFormula>(shown.blocks[1]).words == "step with seq len 8,192, sequence parallel no");
  CHECK(std::get<ShownPlot>(shown.blocks[2]).over == "seq len, tokens");
  CHECK(std::get<ShownPlot>(shown.blocks[2]).by.empty());
  CHECK(std::get<ShownPlot>(shown.blocks[3]).by == "recompute");
  const Lesson generates = lesson_with(
      ":set workload.task=generate\n:plot tpot over workload.max_new_tokens from 64 to 128\n"
      ":table kv_memory for workload.kv_block: 16, 64\n:formula tpot @ workload.kv_cache=false");
  const ShownStep tokens = show(generates, 0, scenario_at(generates, 0), predictions);
  CHECK(std::get<ShownPlot>(tokens.blocks[0]).over == "max new tokens");
  CHECK(std::get<ShownTable>(tokens.blocks[1]).columns[0] == "KV block, tokens");
  CHECK_THAT(std::get<ShownFormula>(tokens.blocks[2]).words, contains("with KV cache no"));
}

TEST_CASE("whole numbers of a lesson are written as all others are, with commas") {
  Predictions predictions;
  const sim::Scenario s = sim::load_scenario_preset("train-llama-3.1-8b-h100");
  CHECK(Expression("seq_len >= 262144 tokens").in_numbers({s, predictions}) ==
        "2,048 tokens >= 262,144 tokens");
  CHECK(Expression("0.5 * 200M tokens < 999 tokens").in_words() == "0.5 \u00D7 200M tokens < 999 tokens");
}

TEST_CASE("what differs between runs is the heading of what was measured of them") {
  Predictions predictions;
  const Lesson lesson = lesson_with(
      ":set model=gpt2-124m, workload.seq_len=1024, workload.dtype=fp32\n:measure step_time for "
      "implementation.attention: standard, "
      "flash");
  const ShownStep shown = show(lesson, 0, scenario_at(lesson, 0), predictions);
  const auto& measured = std::get<ShownMeasurement>(shown.blocks[0]);
  CHECK(measured.by == "attention");
  CHECK(measured.rows.at(1).what() == "flash \u00B7 step");
}

TEST_CASE("what is measured runs in fp32, unless it is the type that the runs differ in") {
  const auto type_in = [](const std::string& variants) {
    const Lesson lesson =
        lesson_with(":set model=tiny-gpt, workload.dtype=bf16\n:measure step_time for " + variants);
    const Measurement& measurement = *measurement_of(lesson.steps[0]);
    Predictions predictions;
    const sim::Scenario& one =
        predictions.changed(scenario_at(lesson, 0), measurement.variants.back().changes, "the measurement");
    return as_measured_here(one, measurement).workload.dtype;
  };
  CHECK(type_in("implementation.attention: standard, flash") == sim::DType::fp32);
  CHECK(type_in("workload.dtype: fp32, bf16, fp8") == sim::DType::fp8);
}

TEST_CASE("losses of runs are curves over their steps, beside the last one of each, which nothing predicts") {
  const Lesson lesson = lesson_with(
      ":set model=tiny-gpt, workload.seq_len=128\n:measure loss for workload.dtype: fp32, bf16, fp8");
  const Measurement& measurement = *measurement_of(lesson.steps[0]);
  const sim::Scenario scenario = scenario_at(lesson, 0);
  Predictions predictions;
  MeasuredRuns runs;
  for (std::size_t v = 0; v < 2; ++v) {  // the third has not run yet
    auto ran = std::make_shared<sim::Report>();
    ran->source.scenario = as_measured_here(
        predictions.changed(scenario, measurement.variants[v].changes, "the measurement"), measurement);
    ran->source.date = "2026-01-02T03:04:05Z";
    for (const std::int64_t step : {1, 2, 3}) {
      sim::StepResult result;
      result.step = step;
      result.loss = 5.5 / static_cast<double>(step) + static_cast<double>(v);
      ran->steps.push_back(result);
    }
    runs.push_back({ran, {}});
  }
  const ShownStep shown = show(lesson, 0, scenario, predictions, &runs);
  REQUIRE(shown.failures.empty());
  const auto& measured = std::get<ShownMeasurement>(shown.blocks[0]);
  REQUIRE(measured.rows.size() == 3);
  CHECK(measured.rows[1].predicted.empty());
  CHECK(measured.rows[1].measured == "2.83");
  CHECK(measured.rows[2].measured.empty());
  REQUIRE(measured.losses);
  CHECK(measured.losses->by == "dtype");
  REQUIRE(measured.losses->curves.size() == 2);
  CHECK(measured.losses->curves[1].label == "bf16");
  CHECK(measured.losses->curves[1].points ==
        std::vector<std::pair<double, double>>{{1, 6.5}, {2, 3.75}, {3, 5.5 / 3 + 1}});
  CHECK_FALSE(std::get<ShownMeasurement>(show(lesson, 0, scenario, predictions).blocks[0]).losses);
}

TEST_CASE("lessons stand by the number of their chapter, then by their place, those without one behind") {
  const auto one = [](const std::string& chapter, const std::string& place) {
    return parse_lesson("---\ntitle: at " + place + "\nchapter: " + chapter +
                            (place.empty() ? "" : "\nplace: " + place) +
                            "\nminutes: 1\nsystems: 2\nscenario: train-llama-3.1-8b-h100\n---\n\n## S\n",
                        "here.md");
  };
  const std::vector<Lesson> in_order = [&] {
    std::vector<Lesson> lessons;
    for (const auto& [chapter, place] : {std::pair("2 Memory", "2"),
                                         {"2 Memory", "10"},
                                         {"2 Memory", ""},
                                         {"10 More", "1"},
                                         {"Appendix", "1"}})
      lessons.push_back(one(chapter, place));
    return lessons;
  }();
  for (std::size_t i = 0; i < in_order.size(); ++i)
    for (std::size_t j = 0; j < in_order.size(); ++j)
      CHECK(stands_before(in_order[i], in_order[j]) == (i < j));
}

TEST_CASE("the line to take home and hints have values, and their figures have sources, as all text") {
  Predictions predictions;
  const Lesson lesson = lesson_with(":take It has {layers} layers.\n:hint Try {hidden}.");
  const ShownStep shown = show(lesson, 0, scenario_at(lesson, 0), predictions);
  CHECK(plain(shown.take_home) == "It has 32 layers.");
  CHECK(plain(shown.hints.at(0).words) == "Try 4,096.");
  for (const std::string line : {":take It is 30 % faster.", ":hint It is 30 % faster."})
    CHECK_THAT(problems_of(lesson_with(line), predictions).front(),
               contains("here.md:10: a figure without a source"));
}

TEST_CASE("what is wrong with a lesson is named with its line") {
  CHECK(refusal_of("Fine.") == "nothing");
  CHECK_THAT(refusal_of(":pannel memory"), contains("here.md:10: \":pannel\" is none of :answer"));
  CHECK_THAT(refusal_of(":ask How many?"), contains("here.md:10: the question has no :answer"));
  CHECK_THAT(refusal_of(":ask How many?\n:answer 3 s\n:choice 3\n:choice 4"),
             contains("here.md:12: the choice is a number, the answer s"));
  CHECK_THAT(refusal_of("##Then"), contains("here.md:10: a step begins with \"## \" and its title"));
  CHECK_THAT(refusal_of(":table mfu for workload.seq_len: 8192, 32,768"),
             contains("numbers have none: 8192, 32768"));
  CHECK_THAT(refusal_of(":ask Which?\n:answer 3\n:choice half: 3"),
             contains("here.md:12: there is no quantity \"half\""));
  CHECK_THAT(refusal_of(":ask Which?\n:answer 3\n:choice half: 3"),
             contains("a choice is WORDS = EXPRESSION, or an expression alone"));
  CHECK_THAT(refusal_of(":answer 3"), contains("stands right behind its :ask"));
  CHECK_THAT(refusal_of("It is {mfu."), contains("} is not closed"));
  CHECK_THAT(refusal_of("It is {mfu|loud}."), contains("none of percent, times, count"));
  CHECK_THAT(refusal_of(":plot mfu over workload.seq_len from 8k to 1k"), contains("to a greater one"));
  CHECK_THAT(refusal_of(":goal Fast if mfu"), contains("a goal is a comparison"));
  CHECK_THAT(
      refusal_of(":film rings"),
      contains("here.md:10: \"rings\" is none of memory, pipeline, ring, cache, experts, draft, tiles"));
  CHECK_THAT(refusal_of(":film draft"), contains("as :film draft with llama-3.2-1b"));
  CHECK_THAT(refusal_of(":measure step_time\n:measure mfu"),
             contains("here.md:11: the step measures already, in line 10"));
  CHECK_THAT(refusal_of(":series complexities"),
             contains("\"complexities\" is no series; there are attention"));
  CHECK_THAT(refusal_of(":notes\nFor me.\n"), contains("here.md:10: the notes that begin here do not end"));
  CHECK_THAT(refusal_of(":notes\nFor me.\n:take It."), contains("then a line :end"));
  CHECK_THAT(refusal_of(":notes here"), contains("a note of one line is :note WORDS"));
  CHECK_THAT(refusal_of(":gold Fast if mfu"), contains("a goal is a comparison"));
  CHECK_THROWS_WITH(parse_lesson("no front", "x.md"), contains("x.md:1"));
  CHECK_THROWS_WITH(parse_lesson("---\ntitle: T\n---\n## S\n", "x.md"), contains("chapter: is missing"));
  CHECK_THROWS_WITH(parse_lesson("---\ntitle: \n---\n## S\n", "x.md"),
                    contains("x.md:2: title: has no value"));
}

TEST_CASE(
    "a check finds a scenario that cannot be, a figure without a source and a question without one answer") {
  const auto problem_of = [](const std::string& lines) {
    Predictions predictions;
    const auto problems = problems_of(lesson_with(lines), predictions);
    return problems.empty() ? "nothing" : problems.front();
  };
  CHECK(problem_of("It is {mfu}.") == "nothing");
  CHECK_THAT(problem_of(":set strategy.tensor_parallel=7\nIt is {mfu}."), contains("tensor_parallel"));
  CHECK_THAT(problem_of("It takes 30 % more."), contains("here.md:10: a figure without a source"));
  CHECK_THAT(problem_of(":ask Which?\n:answer layers\n:because It takes 30 % more."),
             contains("here.md:12: a figure without a source"));
  CHECK(problem_of("It takes 30 % more [Korthikanti 2022, table 4].") == "nothing");
  // Without a desktop in the build there are no panels to know.
  if (!app::panel_names().empty()) CHECK_THAT(problem_of(":panel nowhere"), contains("is none of"));
  CHECK_THAT(problem_of(":ask Which?\n:answer 10\n:choice 9\n:choice 11"), contains("about as near"));
  CHECK_THAT(problem_of("It is {perplexity}."),
             contains("here.md:10: perplexity is measured, never predicted"));
  CHECK_THAT(problem_of("It is {loss}."), contains("here.md:10: loss is measured, never predicted"));
  CHECK_THAT(problem_of(":measure step_time"), contains("what a lesson measures needs 8.00 GiB at most"));
  CHECK(
      problem_of(":set model=gpt-10m, workload.seq_len=256\n:measure step_time for implementation.attention: "
                 "standard, flash") == "nothing");
  CHECK_THAT(problem_of(":ask Which?\n:answer least\n:choice a = 5\n:choice b = 5"), contains("the same"));
  CHECK_THAT(problem_of(":formula 3 * layers\n:ask How many?\n:answer layers * 3"),
             contains("here.md:10: the formula is the answer of the question in line 11"));
  CHECK(problem_of(":ask How many?\n:answer layers * 3\n:formula 3 * layers") == "nothing");
  const std::string later = ":formula 3 * layers\n\n## Later\n\n:ask How many?\n:answer layers * ";
  CHECK_THAT(problem_of(later + "3"),
             contains("here.md:10: the formula is the answer of the question in line "
                      "14, in a later step"));
  CHECK(problem_of(later + "4") == "nothing");
  // So are the two lines of a table of which it is the ratio, and all choices in one column or curve.
  const std::string doubled =
      ":ask By which factor?\n:answer (six_n_causal @ workload.seq_len=16384) / (six_n_causal @ "
      "workload.seq_len=8192)\n";
  const std::string table = ":table six_n, six_n_causal for workload.seq_len: 8192, 16384\n";
  CHECK_THAT(problem_of(table + doubled),
             contains("here.md:10: the table is the answer of the question in line 11: it stands behind it"));
  CHECK(problem_of(doubled + table) == "nothing");
  CHECK(problem_of(":table six_n for workload.seq_len: 8192, 16384\n" + doubled) == "nothing");
  const std::string least =
      ":ask Which is shorter?\n:answer least\n:choice long = step_time @ workload.seq_len=8192\n"
      ":choice short = step_time @ workload.seq_len=4096\n";
  CHECK_THAT(problem_of(":plot step_time over workload.seq_len from 2k to 8k\n" + least),
             contains("here.md:10: the plot is the answer of the question in line 11"));
  CHECK(problem_of(":plot step_time over workload.seq_len from 1k to 4k\n" + least) == "nothing");
  // Its positions end at 1,024.
  CHECK_THAT(problem_of(":set model=gpt2-124m, workload.seq_len=1024\n:plot step_time over workload.seq_len "
                        "from 256 to 16k"),
             contains("here.md:11: of 7 values of workload.seq_len the scenario can have 3"));
}

TEST_CASE("what is wrong with a lesson is a sentence, however long the line is that has it") {
  const std::string endless(30'000, 'x'), number(900, '7');
  const std::string beyond = "(" + number + " + " + std::string(50, 'x');
  for (const std::string& lines :
       {":" + endless, ":film " + endless, ":series " + endless, ":set " + endless, ":solution " + endless,
        ":plot mfu over workload.seq_len from " + endless + " to 8k", ":formula " + beyond,
        ":formula mfu " + beyond, ":formula " + std::string(900, 'x'), ":formula 3 " + std::string(900, 'x'),
        ":formula mfu | " + std::string(900, 'x'), ":formula mfu @ " + std::string(900, 'x')}) {
    const std::string refusal = refusal_of(lines);
    CAPTURE(lines.substr(0, 40), refusal);
    CHECK_THAT(refusal, Catch::Matchers::StartsWith("here.md:10: "));
    CHECK(refusal.size() < 1000);
  }
  for (const std::string& line :
       {endless + ": 1", "kind: " + endless, "minutes: " + endless, "systems: " + endless}) {
    CAPTURE(line.substr(0, 40));
    try {
      parse_lesson("---\n" + line + "\n---\n## S\n", "here.md");
      FAIL("it is refused");
    } catch (const sim::PresetError& error) {
      CHECK_THAT(error.what(), Catch::Matchers::StartsWith("here.md:2: "));
      CHECK(std::string(error.what()).size() < 1000);
    }
  }
}

TEST_CASE("what is wrong in a line of a paragraph or of a question is named at that line") {
  CHECK_THAT(refusal_of("It has\n{layers} layers, and\n**many\nmore** and {layer} of them."),
             contains("here.md:13: there is no quantity \"layer\""));
  const auto problems_with = [](const std::string& lines) {
    Predictions predictions;
    return problems_of(lesson_with(lines), predictions);
  };
  const std::string impossible = "step_time @ strategy.zero_stage=seven";
  for (const std::string& lines :
       {"It has {layers}\nlayers, and {" + impossible + "}.", ":ask When?\n:answer " + impossible,
        ":ask {layers}?\n:answer layers\n:because So {" + impossible + "}."}) {
    INFO(lines);
    const auto problems = problems_with(lines);
    const std::string before = lines.substr(0, lines.find(impossible));
    const auto line = 10 + std::ranges::count(before, '\n');
    REQUIRE(problems.size() == 1);
    CHECK_THAT(problems[0], Catch::Matchers::StartsWith("here.md:" + std::to_string(line) + ": "));
  }
  const auto of_choice = problems_with(":ask When?\n:answer 3 s\n:choice 9 s\n:choice late = " + impossible);
  REQUIRE(of_choice.size() == 1);
  CHECK_THAT(of_choice[0], Catch::Matchers::StartsWith("here.md:13: "));
  CHECK_THAT(problems_with("It has {layers}\nlayers: 30 %\nmore.").at(0),
             contains("here.md:11: a figure without a source"));
}

TEST_CASE("in a formula a unit over a unit does not look like one more division") {
  CHECK(Expression("15T tokens / tokens_per_second").in_words() == "15T tokens / (tokens/s)");
  // A unit alone is taken away or put on, which is no arithmetic; an hour is some seconds.
  CHECK(Expression("heads * seq_len * 2 bytes / 1 tokens").in_words() ==
        "heads \u00D7 sequence \u00D7 2 bytes");
  CHECK(Expression("step_time / 1 h").in_words() == "step / 1 h");
  CHECK(Expression("200M tokens / 3^(1/0.21)").in_words() == "200M tokens / 3^(1 / 0.21)");
}

TEST_CASE("what no value is measured in is refused where it is written: seconds times tokens") {
  CHECK_THAT(refusal_of("Fine.\n\n:ask How long?\n:answer step_time * tokens"),
             contains("here.md:13: \"step_time * tokens\" comes to s x tokens; what is shown is a number, or "
                      "in bytes, s, FLOP, tokens, dollars, joules, bytes/s"));
  CHECK_THAT(refusal_of(":formula 1 / step_time"), contains("comes to 1/s"));
  CHECK(refusal_of(":formula step_time * tokens / step_time") == "nothing");
  for (const Quantity& quantity : quantities()) {
    INFO(quantity.name);
    CHECK(quantity.dimension.is_written());
  }
}

TEST_CASE("a scenario that cannot be is said once, and not with every number and every step that has it") {
  Predictions predictions;
  const auto problems =
      problems_of(lesson_with(":set strategy.data_parallel=8, workload.global_batch_size=64, "
                              "strategy.zero_stage=7\nIt is {mfu}, {step_time}.\n\n## Then\n\nIt is {mfu}."),
                  predictions);
  REQUIRE(problems.size() == 1);
  CHECK_THAT(problems[0], contains("here.md:10: strategy.zero_stage must be from 0 to 3, but is 7"));
  Lesson nowhere = lesson_with("It is {mfu}.\n\n## Then\n\nIt is {mfu}.");
  nowhere.scenario = "train-llama-9";
  const auto unknown = problems_of(nowhere, predictions);
  REQUIRE(unknown.size() == 1);
  CHECK_THAT(unknown[0],
             contains("here.md:6: scenario: there is no scenario preset \"train-llama-9\"; there are"));
}

TEST_CASE("what cannot be set is named at the line that sets it, not at its step") {
  const auto problem_of = [](const std::string& lines) {
    Predictions predictions;
    const auto problems = problems_of(lesson_with(lines), predictions);
    return problems.empty() ? "nothing" : problems.front();
  };
  const std::string fine = "It is {mfu}.\n:set workload.seq_len=1024\n";
  CHECK_THAT(problem_of(fine + ":set strategy.tensor=7"), contains("here.md:12: field \"strategy.tensor\""));
  CHECK_THAT(problem_of(fine + ":set seq_len=7"),
             contains("here.md:12: field \"seq_len\" is not known here; workload.seq_len is"));
  CHECK_THAT(problem_of(fine + ":set model=llama-9"), contains("here.md:12: "));
  CHECK_THAT(problem_of(fine + ":set workload.seq_len=many"), contains("here.md:12: "));
  // A value that is no scenario's: at the line that set the field, if there are others behind it, too.
  CHECK_THAT(problem_of(":set strategy.zero_stage=7\n" + fine), contains("here.md:10: strategy.zero_stage"));
  CHECK_THAT(problem_of(fine + "\n## Then\n\n:take It.\n:set strategy.zero_stage=7"),
             contains("here.md:16: strategy.zero_stage"));
  // Lines that can be together, and only together, are fine.
  CHECK(problem_of(":set strategy.data_parallel=8\n:set workload.global_batch_size=64") == "nothing");
}

TEST_CASE("what is wrong with a mission is named at its line: its solution, and a start that needs none") {
  const auto problem_of = [](const std::string& lines) {
    Lesson mission = lesson_with(lines);
    mission.mission = true;
    Predictions predictions;
    const auto problems = problems_of(mission, predictions);
    return problems.empty() ? "nothing" : problems.front();
  };
  CHECK_THAT(problem_of(":goal Fast if mfu > 2\n:solution strategy.tensor=7"),
             contains("here.md:11: field \"strategy.tensor\""));
  CHECK_THAT(problem_of(":goal Fast if mfu > 2\n\n:solution workload.seq_len=1024"),
             contains("here.md:12: the solution misses a goal"));
  CHECK_THAT(problem_of(":goal Fast if mfu > 0\n:solution workload.seq_len=1024"),
             contains("the mission is solved as it begins"));
  CHECK_THAT(problem_of(":goal Fast if mfu > 2"), contains("the mission has no :solution"));
}

TEST_CASE("the right answer of a question is computed by the model") {
  const Lesson lesson = lesson_with(":ask How many?\n:answer 6.2\n:choice 2\n:choice six = 6\n:choice 20");
  Predictions predictions;
  const ShownStep shown = show(lesson, 0, scenario_at(lesson, 0), predictions);
  REQUIRE(shown.blocks.size() == 1);
  CHECK(std::get<ShownQuestion>(shown.blocks[0]).right == 1);
  // The least and the greatest are answered by name.
  const Lesson least =
      lesson_with(":ask Which?\n:answer least\n:choice five layers = 5\n:choice 3\n:choice 9");
  CHECK(std::get<ShownQuestion>(show(least, 0, scenario_at(least, 0), predictions).blocks[0]).answer_text ==
        "3");
  const Lesson most = lesson_with(":ask Which?\n:answer greatest\n:choice five layers = 5\n:choice 3");
  CHECK(std::get<ShownQuestion>(show(most, 0, scenario_at(most, 0), predictions).blocks[0]).answer_text ==
        "five layers, 5");
}

TEST_CASE(
    "notes are the lecturer's: apart from the step, with its numbers, and their figures have sources too") {
  const Lesson lesson = lesson_with(
      "Read this.\n:notes\nWait {layers|count} seconds,\nno more.\n\n- Then go on.\n:end\nAnd this.");
  Predictions predictions;
  const ShownStep shown = show(lesson, 0, scenario_at(lesson, 0), predictions);
  REQUIRE(shown.notes.size() == 2);
  CHECK(plain(shown.notes[0].words) == "Wait 32 seconds, no more.");
  CHECK(shown.notes[1].bullet);
  CHECK(shown.blocks.size() == 2);
  CHECK_THAT(problems_of(lesson_with(":note It takes 30 % more."), predictions).front(),
             contains("a figure without a source"));
}

TEST_CASE("a tier of a mission is reached with all below it, and none before bronze") {
  const auto tier = [](bool bronze, bool silver, bool gold) {
    ShownStep step;
    step.blocks = {ShownGoal{Tier::bronze, {}, "", true}, ShownGoal{Tier::bronze, {}, "", bronze},
                   ShownGoal{Tier::silver, {}, "", silver}, ShownGoal{Tier::gold, {}, "", gold}};
    return tier_reached(step);
  };
  CHECK(tier(false, true, true) == std::nullopt);
  CHECK(tier(true, false, true) == Tier::bronze);
  CHECK(tier(true, true, false) == Tier::silver);
  CHECK(tier(true, true, true) == Tier::gold);
  CHECK(tier_reached({}) == std::nullopt);
}

TEST_CASE("every mission has three tiers, begins below all of them, and its solution is gold") {
  int missions = 0;
  for (const auto& file : lesson_files(lesson_directory())) {
    const Lesson lesson = load_lesson(file);
    if (!lesson.mission) continue;
    INFO(file.string());
    ++missions;
    std::set<Tier> tiers;
    for (const Step& step : lesson.steps)
      for (const Block& block : step.blocks)
        if (const auto* goal = std::get_if<Goal>(&block)) tiers.insert(goal->tier);
    CHECK(tiers.size() == kTiers.size());
    Predictions predictions;
    CHECK(tier_reached(show(lesson, 0, scenario_at(lesson, 0), predictions)) == std::nullopt);
    CHECK(tier_reached(show(lesson, 0, solved_at(lesson, 0), predictions)) == Tier::gold);
  }
  CHECK(missions == 10);
}

TEST_CASE("every lesson plays from its first step to its last, and every mission can be won") {
  for (const auto& file : lesson_files(lesson_directory())) {
    INFO(file.string());
    const Lesson lesson = load_lesson(file);
    Predictions predictions;
    const std::vector<std::string> problems = problems_of(lesson, predictions);
    for (const std::string& problem : problems) UNSCOPED_INFO(problem);
    CHECK(problems.empty());
  }
}

TEST_CASE("all 35 systems have a lesson") {
  std::set<int> taught;
  for (const auto& file : lesson_files(lesson_directory()))
    for (const int system : load_lesson(file).systems) taught.insert(system);
  for (int system = 1; system <= 35; ++system) {
    INFO("system " << system);
    CHECK(taught.count(system) == 1);
  }
}
