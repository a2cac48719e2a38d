// Moving pictures: laws of what a plan does over time.
#include "app/lesson/film.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "app/lesson/situation.h"
#include "sim/report/metrics.h"
#include "sim/scenario/overrides.h"
#include "sim/scenario/preset.h"
#include "tests/support/catch.h"

using namespace app::lesson;

namespace {

Film film_of(FilmKind kind, const std::string& preset, const Changes& changes) {
  const sim::Scenario scenario = sim::with_overrides(sim::load_scenario_preset(preset), changes, "the test");
  Predictions predictions;
  return make_film(kind, scenario, *predictions.of(scenario), nullptr,
                   kind == FilmKind::draft ? "llama-3.2-1b" : "",
                   [&](const sim::Scenario& other) { return *predictions.of(other); });
}

// What a row does follows upon what it did before.
void check_rows(const Film& film) {
  CHECK_FALSE(film.spans.empty());
  for (std::size_t i = 1; i < film.spans.size(); ++i) {
    const Film::Span &before = film.spans[i - 1], &span = film.spans[i];
    CHECK((before.row < span.row || (before.row == span.row && before.end <= span.start + 1e-12)));
    CHECK(span.start <= span.end);
    CHECK(span.end <= film.end);
  }
}

}  // namespace

TEST_CASE("micro-batches walk forward through the stages and back again, each pass once") {
  const Film film = film_of(FilmKind::pipeline, "train-llama-3.1-8b-h100",
                            {{"strategy.pipeline_parallel", "4"}, {"workload.global_batch_size", "8"}});
  check_rows(film);
  CHECK(film.rows.size() == 4);
  CHECK(film.holders == 8);
  std::map<std::pair<std::size_t, int>, Film::Span> forward, backward;
  for (const Film::Span& span : film.spans)
    if (span.of >= 0) CHECK((span.back ? backward : forward).try_emplace({span.row, span.of}, span).second);
  CHECK(forward.size() == 32);
  CHECK(backward.size() == 32);
  for (int m = 0; m < 8; ++m)
    for (std::size_t stage = 0; stage + 1 < 4; ++stage) {
      CHECK(forward.at({stage, m}).end <= forward.at({stage + 1, m}).start + 1e-12);
      CHECK(backward.at({stage + 1, m}).end <= backward.at({stage, m}).start + 1e-12);
    }
  // While the first micro-batch is in the first stage, that works alone.
  const Film::Span& first = forward.at({0, 0});
  CHECK(film.says((first.start + first.end) / 2) == "1 of 4 stages work, 3 wait");
}

TEST_CASE(
    "memory rises with forward passes and falls with backward passes, to the peak that the report has") {
  const Film film =
      film_of(FilmKind::memory, "train-llama-3.1-8b-h100", {{"workload.global_batch_size", "4"}});
  check_rows(film);
  REQUIRE_FALSE(film.levels.empty());
  const auto activations = [&](double time) {
    return film.level_at(time).bytes[static_cast<std::size_t>(sim::BufferClass::activation)].value;
  };
  for (const Film::Span& span : film.spans) {
    if (span.of < 0) continue;
    const double early = span.start + .1 * (span.end - span.start),
                 late = span.start + .9 * (span.end - span.start);
    CHECK((span.back ? activations(late) < activations(early) : activations(late) > activations(early)));
  }
  std::int64_t highest = 0;
  for (const sim::MemoryTimePoint& point : film.levels)
    highest = std::max(highest, sim::total(point.bytes).value);
  const sim::Scenario scenario = sim::with_overrides(sim::load_scenario_preset("train-llama-3.1-8b-h100"),
                                                     {{"workload.global_batch_size", "4"}}, "");
  Predictions predictions;
  std::int64_t reported = 0;
  for (const sim::MemoryTimePoint& point : predictions.of(scenario)->memory_timeline)
    reported = std::max(reported, sim::total(point.bytes).value);
  CHECK(highest == reported);
}

TEST_CASE("in a ring every rank sees the keys and values of all once, and no two the same at a time") {
  const Film film = film_of(FilmKind::ring, "train-llama-3.1-8b-h100",
                            {{"strategy.context_parallel", "4"},
                             {"strategy.context_parallel_comm", "ring"},
                             {"workload.seq_len", "16384"}});
  check_rows(film);
  REQUIRE(film.rows.size() == 4);
  std::vector<std::set<int>> seen(4);
  for (const Film::Span& span : film.spans) {
    CHECK(seen[span.row].insert(span.of).second);
    std::set<int> now;
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const Film::Span* const other = film.at(rank, (span.start + span.end) / 2);
      REQUIRE(other);
      now.insert(other->of);
    }
    CHECK(now.size() == 4);
    // It goes on to the neighbour.
    if (const Film::Span* const next = film.at((span.row + 1) % 4, span.end + 1e-9))
      CHECK(next->of == span.of);
  }
  for (const auto& all : seen) CHECK(all.size() == 4);
}

TEST_CASE("a block of the cache has one holder at a time, and is freed when its sequence ends") {
  const Film film = film_of(FilmKind::cache, "chat-llama-3.1-8b-h100",
                            {{"workload.batch_size", "4"},
                             {"workload.prompt_length", "64"},
                             {"workload.max_new_tokens", "64"},
                             {"workload.kv_block", "16"}});
  check_rows(film);
  CHECK(film.rows.size() == 32);
  CHECK(film.holders == 8);
  std::set<int> holders;
  std::map<int, double> ends;
  for (const Film::Span& span : film.spans) {
    holders.insert(span.of);
    ends.try_emplace(span.of, span.end);
    // All blocks of a sequence are freed at once.
    CHECK(span.end == ends.at(span.of));
  }
  CHECK(holders.size() == 8);
  for (std::size_t block = 0; block < film.rows.size(); ++block) CHECK(film.at(block, film.end) == nullptr);
}

TEST_CASE(
    "every token goes to as many experts as the model chooses and comes back, and the busiest device "
    "decides") {
  const double imbalance = GENERATE(1.0, 1.5, 2.0);
  const Film film = film_of(FilmKind::experts, "train-llama-3.1-8b-h100",
                            {{"model", "mixtral-8x7b"},
                             {"strategy.data_parallel", "8"},
                             {"strategy.expert_parallel", "8"},
                             {"strategy.zero_stage", "1"},
                             {"workload.global_batch_size", "64"},
                             {"workload.expert_imbalance", std::to_string(imbalance)}});
  check_rows(film);
  REQUIRE(film.rows.size() == 8);
  std::vector<int> left(8, 0), came(8, 0), home(8, 0);
  for (const Film::Flight& flight : film.flights) {
    if (flight.start == 0) {
      ++left[flight.from];
      ++came[flight.to];
    } else {
      ++home[flight.to];
    }
  }
  for (std::size_t d = 0; d < 8; ++d) {
    CHECK(left[d] == 8 * 2);  // tokens of a device, experts of a token
    CHECK(home[d] == left[d]);
    // As long as it has tokens.
    const auto span = std::ranges::find(film.spans, d, &Film::Span::row);
    const double busiest = *std::ranges::max_element(came);
    CHECK((span->end - span->start) / (film.spans[4].end - film.spans[4].start) == Approx(came[d] / busiest));
  }
  CHECK(*std::ranges::max_element(came) == Approx(16 * imbalance));
}

TEST_CASE("of proposals those before the first refusal are written, and then a token of the model's own") {
  const Film film = film_of(FilmKind::draft, "chat-llama-3.1-8b-h100", {});
  check_rows(film);
  // By hand, from what was refused.
  std::vector<bool> expected;
  int in_round = 0;
  bool refused = false;
  for (const Film::Span& span : film.spans) {
    if (span.row != 0) continue;
    if (!refused && !span.back) expected.push_back(true);
    refused = refused || span.back;
    if (++in_round == kProposals) {
      expected.push_back(false);
      in_round = 0;
      refused = false;
    }
  }
  REQUIRE(film.written.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(film.written[i].proposed == expected[i]);
  // A round's tokens are known as its verification ends.
  for (const Film::Written& token : film.written)
    CHECK(std::ranges::any_of(film.spans,
                              [&](const Film::Span& s) { return s.row == 1 && s.end == token.time; }));
  CHECK(film.written.back().time == film.end);
}

TEST_CASE("an online softmax ends with the maximum and the sum of all scores at once") {
  const Film film = film_of(FilmKind::tiles, "train-llama-3.1-8b-h100",
                            {{"model", "gpt2-124m"}, {"workload.seq_len", "1000"}});
  check_rows(film);
  REQUIRE(film.rows.size() == 16);  // of 64 queries, the last of fewer
  CHECK(film.spans.size() == 16 * 17 / 2);
  for (std::size_t row = 0; row < 16; ++row) {
    const std::vector<double>& scores = film.scores[row];
    CHECK(scores.size() == std::min<std::size_t>(1000, 64 * (row + 1)));
    const double maximum = *std::ranges::max_element(scores);
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - maximum);
    const Film::Softmax& last = film.softmax[(row + 1) * (row + 2) / 2 - 1];
    CHECK(last.maximum == maximum);
    CHECK(last.sum == Approx(sum));
  }
}

TEST_CASE("a scenario that has no such picture says which would") {
  const auto refusal = [](FilmKind kind, const Changes& changes) -> std::string {
    try {
      film_of(kind, "train-llama-3.1-8b-h100", changes);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "nothing";
  };
  CHECK_THAT(refusal(FilmKind::pipeline, {}), contains("strategy.pipeline_parallel is 2 or more"));
  CHECK_THAT(refusal(FilmKind::ring, {}), contains("strategy.context_parallel is 2 or more"));
  CHECK_THAT(refusal(FilmKind::ring,
                     {{"strategy.context_parallel", "2"}, {"strategy.context_parallel_comm", "all_gather"}}),
             contains("context_parallel_comm is ring"));
  CHECK_THAT(refusal(FilmKind::cache, {}), contains("a generation with a KV cache"));
  CHECK_THAT(refusal(FilmKind::experts, {}), contains("as mixtral-8x7b"));
  CHECK_THAT(refusal(FilmKind::draft, {}), contains("in a generation"));
  CHECK_THAT(refusal(FilmKind::tiles, {{"implementation.attention", "standard"}}),
             contains("attention is flash"));
}
