// What the inference panel shows, and that it is never waited for.
#include <cmath>

#include "app/gui/panels/inference.h"
#include "sim/plan/legality.h"
#include "sim/serving/speculative.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"

using namespace app::gui;

namespace {

sim::Scenario served(const char* model, const char* hardware = "h100-sxm") {
  sim::Scenario s = tests::small_scenario();
  s.model = sim::load_model_preset(model);
  s.hardware = sim::load_hardware_preset(hardware);
  s.implementation = sim::load_implementation_preset("vllm_0.14");
  s.workload.task = sim::Task::generate;
  s.workload.batch_size = 16;
  s.workload.prompt_length = 1024;
  s.workload.max_new_tokens = 256;
  return s;
}

InferenceStudy study_of(const sim::Scenario& s, const InferenceChoices& choices = {}) {
  InferenceStudies studies;
  return studies.study({s, nullptr, choices});
}

}  // namespace

TEST_CASE("a scenario of training is served on as many tensor-parallel devices as its weights ask for") {
  const sim::Scenario training = sim::load_scenario_preset("train-llama-3.1-405b-16384-h100");
  const sim::Scenario s = as_served(training, "");
  CHECK(sim::is_served(s));
  CHECK(sim::validate(s).empty());
  CHECK(sim::engine_memory(s).cache_tokens > 0);
  // 405B parameters of two bytes fill eight devices of 80 GB.
  CHECK(s.strategy.tensor_parallel == 16);
  const sim::Scenario own = served("llama-3.1-8b");
  CHECK(as_served(own, "sglang_0.4") == own);
}

TEST_CASE("an engine keeps a KV cache, whatever the scenario of a run says") {
  sim::Scenario s = served("llama-3.1-8b");
  s.workload.kv_cache = false;
  const InferenceStudy study = study_of(s);
  CHECK(study.served->memory.cache_of_token > 0);
  CHECK(study.served->requests_that_fit >= 1);
  CHECK(study.served->times.later_token.total().value ==
        study_of(served("llama-3.1-8b")).served->times.later_token.total().value);
}

TEST_CASE("no token comes sooner in a larger batch or after a longer context") {
  const InferenceStudy s = study_of(served("llama-3.1-8b"));
  REQUIRE(s.rates.size() > 1);
  for (const RateCurve& curve : s.rates)
    for (std::size_t i = 1; i < curve.points.size(); ++i) {
      CHECK(curve.points[i].tpot >= curve.points[i - 1].tpot);
      CHECK(curve.points[i].fits <= curve.points[i - 1].fits);
    }
  for (const RateCurve& other : s.rates)
    for (std::size_t i = 0; i < other.points.size(); ++i) {
      if (other.context >= s.rates.front().context)
        CHECK(other.points[i].tpot >= s.rates.front().points[i].tpot);
      else
        CHECK(other.points[i].tpot <= s.rates.front().points[i].tpot);
    }
}

TEST_CASE("pages hold at most a block more of each sequence than is used, a contiguous cache all of it") {
  const InferenceStudy s = study_of(served("llama-3.1-8b"), {.sequences = 64, .context = 32768});
  const CacheStudy& cache = s.cache;
  REQUIRE(cache.block == 16);
  const double a_token = s.served->memory.cache_of_token;
  for (const CachePoint& p : cache.points) {
    CHECK(p.used == Approx(a_token * p.tokens * 64).epsilon(1e-6));
    CHECK(p.paged >= p.used);
    CHECK(p.paged - p.used <= 15 * a_token * 64 * (1 + 1e-6));
    CHECK(p.contiguous >= p.paged * (1 - 1e-9));
  }
  // 64 sequences of 128 KiB a token fill what is left of 80 GB before they are 32,768 tokens long.
  REQUIRE(cache.full_at);
  CHECK(*cache.full_at * 64 == Approx(s.served->memory.cache_tokens).epsilon(0.02));
}

TEST_CASE("a layer with a window keeps no more than the window") {
  sim::Scenario windowed = served("mistral-7b");
  windowed.model.sliding_window = 4096;
  const InferenceStudy s = study_of(windowed, {.context = 32768});
  const auto& points = s.cache.points;
  CHECK(points.back().used == Approx(points[points.size() / 2].used));
}

TEST_CASE("traffic at the rate that nobody chose is kept up with, every request is answered") {
  const InferenceStudy s = study_of(served("llama-3.1-8b"));
  const TrafficStudy& t = s.traffic;
  REQUIRE(t.refusal.empty());
  CHECK(t.requests_per_second < t.most_per_second);
  for (const sim::RequestTimes& request : t.run.requests) CHECK(request.finished > request.arrived);
  for (std::size_t i = 1; i < kShares.size(); ++i) {
    CHECK(t.ttft[i] >= t.ttft[i - 1]);
    CHECK(t.tpot[i] >= t.tpot[i - 1]);
  }
  // Twice what can be answered: the queue grows, and with it the wait for a first token.
  const InferenceStudy crowded =
      study_of(served("llama-3.1-8b"), {.requests_per_second = 2 * t.most_per_second});
  CHECK(crowded.traffic.ttft[0].value > 10 * t.ttft[0].value);
}

TEST_CASE("a draft's gain is that of its acceptance, less what it and the check of its tokens take") {
  const InferenceStudy s = study_of(served("llama-3.1-8b"));
  const SpeculationStudy& draft = s.speculation;
  REQUIRE(draft.refusal.empty());
  CHECK(draft.draft_step < draft.plain_step);
  for (const std::int64_t length : {1, 4, 12}) {
    const double round =
        (draft.draft_step * static_cast<double>(length) + draft.verify[static_cast<std::size_t>(length - 1)])
            .value;
    CHECK(draft.speedup(0, length) <= 1);
    CHECK(draft.speedup(0.6, length) ==
          Approx(sim::expected_tokens(0.6, length) * draft.plain_step.value / round));
  }
  CHECK(draft.best_length(0.95) > draft.best_length(0.3));
  const InferenceStudy other = study_of(served("llama-3.1-8b"), {.draft = "gpt2-124m"});
  CHECK_FALSE(other.rates.empty());  // a draft that cannot be costs the rest nothing
}

TEST_CASE("the inference panel draws at every size and scale, of training and of generation") {
  const bool training = GENERATE(true, false);
  const ImVec2 size = GENERATE(ImVec2{700, 500}, ImVec2{1280, 800}, ImVec2{2560, 1600});
  tests::NullDesktop desktop(
      training ? sim::load_scenario_preset("train-llama-3.1-8b-h100") : served("llama-3.1-8b"), size);
  if (size.x > 2000) desktop.shell().set_display_scale(2);
  desktop.shell().commands().invoke("maximise.inference");
  desktop.settle_studies();
  for (int tab = 0; tab < 5; ++tab) {
    desktop.state<InferenceState>().tab = tab;
    desktop.frames(2);
    CHECK(GImGui->ErrorCountCurrentFrame == 0);
  }
  CHECK(ImGui::GetDrawData()->TotalVtxCount > 1000);
}

TEST_CASE("a model that no engine can serve is said so, with the engine still to be picked") {
  sim::Scenario s = served("llama-3.1-8b");
  s.implementation = sim::load_implementation_preset("ridgepoint");
  s.strategy.tensor_parallel = 3;  // divides no head
  const auto problems = sim::validate(as_served(s, ""));
  REQUIRE_FALSE(problems.empty());
  CHECK_THROWS_WITH(study_of(s), contains(problems.front().message));
  tests::NullDesktop desktop(s, {1280, 800});
  desktop.shell().commands().invoke("maximise.inference");
  desktop.settle_studies();
  const std::string words = desktop.words();
  CHECK_THAT(words, contains("This cannot be served"));
  CHECK_THAT(words, contains("vllm_0.14"));
}

TEST_CASE("a choice of the panel is answered with that choice, an edit of the scenario, too") {
  tests::NullDesktop desktop(served("llama-3.1-8b"), {1280, 800});
  desktop.shell().commands().invoke("maximise.inference");
  desktop.settle_studies();
  const auto shown = [&] { return desktop.state<InferenceState>().study.result(); };
  REQUIRE(shown());
  desktop.state<InferenceState>().choices.context = 2048;
  desktop.settle_studies();
  CHECK(shown()->rates.front().context == 2048);
  sim::Scenario next = desktop.shell().document().scenario();
  next.workload.batch_size = 4;
  desktop.shell().document().edit("batch", next);
  desktop.settle_studies();
  CHECK(shown()->scenario.workload.batch_size == 4);
  CHECK(shown()->rates.front().context == 2048);
}
