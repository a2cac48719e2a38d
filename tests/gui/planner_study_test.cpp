// Searches behind the planner panel: what may change, streaming, cancelling, comparing, applying.
#include <algorithm>

#include "app/gui/panels/planner.h"
#include "sim/plan/legality.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"

using namespace app::gui;

namespace {

// A space small enough to predict whole.
PlannerQuestion small_question() {
  PlannerQuestion question{tests::small_scenario(), nullptr, {}};
  question.scenario.workload.seq_len = 512;
  question.scenario.workload.micro_batch_size = 1;
  question.scenario.workload.global_batch_size = 4;
  question.choices.devices = 2;
  question.choices.context = question.choices.recompute = question.choices.micro_batch = false;
  return question;
}

const ImGuiWindow* window_named(const char* part) {
  for (const ImGuiWindow* window : GImGui->Windows)
    if (window->Active && std::string_view(window->Name).find(part) != std::string_view::npos) return window;
  return nullptr;
}

// Searches until nothing runs.
const PlannerView& found(PlannerStudy& search, PlannerQuestion question) {
  search.ask(std::move(question));
  search.wait();
  search.poll();
  REQUIRE(search.result());
  return *search.result();
}

}  // namespace

TEST_CASE("what may not change keeps the scenario's value, and the space shrinks by as much") {
  PlannerQuestion question{sim::load_scenario_preset("train-llama-3.1-8b-h100"), nullptr, {}};
  question.choices.devices = 8;
  const sim::SearchSpace all = space_of(question);
  question.choices.tensor = question.choices.sharding = false;
  const sim::SearchSpace less = space_of(question);
  CHECK(less.tensor_parallel == std::vector<int>{question.scenario.strategy.tensor_parallel});
  CHECK(less.zero_stage == std::vector<int>{question.scenario.strategy.zero_stage});
  CHECK(less.pipeline_parallel == all.pipeline_parallel);
  CHECK(sim::size(less) *
            static_cast<std::int64_t>(all.tensor_parallel.size() * all.sequence_parallel.size() *
                                      all.zero_stage.size() * all.shard_group.size()) ==
        sim::size(all));
  question.choices.fewer = true;
  CHECK(space_of(question).devices == std::vector<int>{8, 4, 2, 1});
}

TEST_CASE("limits of tokens a second, money and energy refuse what does not keep to them") {
  const auto refused_by = [](PlanLimits limits) {
    PlannerStudy search(search_strategies, [] {});
    PlannerQuestion question = small_question();
    question.choices.limits = limits;
    const sim::SearchResult& result = found(search, question).result;
    CHECK(result.fitting == 0);
    std::string reasons;
    for (const auto& [reason, count] : result.refused) reasons += reason + " ";
    return reasons;
  };
  // Faster, cheaper and thriftier than any device.
  CHECK_THAT(refused_by({.least_tokens_per_second = 1e15}), contains("least_tokens_per_second"));
  CHECK_THAT(refused_by({.most_usd_per_million_tokens = 1e-12}), contains("most_usd_per_million_tokens"));
  CHECK_THAT(refused_by({.most_kwh_per_million_tokens = 1e-12}), contains("most_kwh_per_million_tokens"));
}

TEST_CASE("a search ends with every candidate looked at, and says what it found on the way") {
  std::atomic<int> news = 0;
  PlannerStudy search(search_strategies, [&] { ++news; });
  CHECK(search.result() == nullptr);
  const PlannerView* view = &found(search, small_question());
  const StudyProgress& progress = search.progress();
  CHECK(progress.failure.empty());
  CHECK_FALSE(progress.running);
  CHECK(news >= 2);  // that it began, and that it ended
  const std::int64_t total = sim::size(view->space);
  CHECK(view->result.looked_at == total);
  CHECK(progress.of == total);
  CHECK(progress.done == total);
  std::int64_t refused = 0;
  for (const auto& [reason, count] : view->result.refused) refused += count;
  CHECK(refused + view->result.fitting == total);
  const auto& best = view->result.best[sim::Objective::time];
  REQUIRE(best.size() > 1);
  for (std::size_t i = 1; i < best.size(); ++i) CHECK(best[i - 1].step <= best[i].step);
  for (const sim::Candidate& c : best) CHECK(sim::validate(sim::candidate(view->space, c.index)).empty());
}

TEST_CASE("a search that is cancelled ends early and keeps what it found, the next one begins anew") {
  PlannerStudy search(search_strategies, [] {});
  PlannerQuestion large = small_question();
  large.scenario = sim::load_scenario_preset("train-llama-3.1-8b-h100");
  large.scenario.workload.global_batch_size = 1024;
  large.choices = {};
  large.choices.devices = 1024;
  search.ask(large);
  while (!search.result()) {
    std::this_thread::yield();
    search.poll();
  }
  search.cancel();
  search.wait();
  search.poll();
  CHECK(search.progress().cancelled);
  CHECK_FALSE(search.progress().running);
  CHECK(search.result()->result.looked_at < search.progress().of);
  const PlannerView& whole = found(search, small_question());
  CHECK_FALSE(search.progress().cancelled);
  CHECK(whole.result.looked_at == sim::size(whole.space));
}

TEST_CASE("two picks are compared by what they spend a step on") {
  PlannerStudy search(search_strategies, [] {});
  const PlannerView& view = found(search, small_question());
  const auto& best = view.result.best[sim::Objective::time];
  REQUIRE(best.size() > 1);
  const sim::Explanation e = explain_picks({{best.front().index, best.back().index}, view.space, nullptr});
  REQUIRE(e.step.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    double sum = 0;
    for (const sim::SpendingRow& row : e.rows) sum += row.seconds[i].value;
    CHECK(sum == Approx(e.step[i].value));
  }
  CHECK(e.step[0] <= e.step[1]);
}

TEST_CASE("Apply puts a pick into the scenario as one edit, which undo takes back") {
  const PlannerQuestion question = small_question();
  tests::NullDesktop desktop(question.scenario, {1280, 800});
  desktop.state<PlannerState>().choices = question.choices;
  desktop.shell().commands().invoke("maximise.planner");
  desktop.frames(2);
  REQUIRE(desktop.shell().commands().invoke("planner.search"));
  desktop.settle_studies();
  REQUIRE(desktop.state<PlannerState>().search.result());
  const PlannerView& view = *desktop.state<PlannerState>().search.result();
  const auto& best = view.result.best[sim::Objective::memory];
  REQUIRE(best.size() > 1);
  desktop.state<PlannerState>().picks = {best[0].index, best[1].index};
  desktop.settle_studies();
  CHECK(GImGui->ErrorCountCurrentFrame == 0);
  const ImGuiWindow* part = window_named("/compared_");
  REQUIRE(part);
  const int first = 0;
  ImGuiID id = ImHashData(&first, sizeof first, part->ID);
  id = ImHashStr("Apply", 0, id);
  auto& document = desktop.shell().document();
  const sim::Scenario before = document.scenario();
  const sim::Scenario picked = sim::candidate(view.space, best[0].index);
  REQUIRE_FALSE(picked == before);
  ImGui::SetWindowFocus("##maximised");
  desktop.frames(1);
  GImGui->NavActivateId = 0;
  ImGui::ActivateItemByID(id);
  desktop.frames(2);
  CHECK(document.scenario() == picked);
  CHECK(std::string(document.undo_label()).find("plan: ") == 0);
  document.undo();
  CHECK(document.scenario() == before);
}

TEST_CASE("the planner panel draws at every size, before, during and after a search") {
  const ImVec2 size = GENERATE(ImVec2{700, 500}, ImVec2{1280, 800}, ImVec2{2560, 1600});
  tests::NullDesktop desktop(small_question().scenario, size);
  if (size.x > 2000) desktop.shell().set_display_scale(2);
  desktop.state<PlannerState>().choices = small_question().choices;
  desktop.shell().commands().invoke("maximise.planner");
  const auto draw_all = [&] {
    for (int tab = 0; tab < 4; ++tab)
      for (const auto axis : {sim::Objective::time, sim::Objective::energy}) {
        desktop.state<PlannerState>().tab = tab;
        desktop.state<PlannerState>().x = axis;
        desktop.frames(2);
        CHECK(GImGui->ErrorCountCurrentFrame == 0);
      }
  };
  draw_all();
  desktop.shell().commands().invoke("planner.search");
  draw_all();
  desktop.settle_studies();
  draw_all();
  CHECK(ImGui::GetDrawData()->TotalVtxCount > 500);
}

TEST_CASE("ways to serve keep to their limits, the frontier falls, the pick stands beside the best") {
  sim::Scenario s = tests::small_scenario();
  s.model = sim::load_model_preset("llama-3.1-8b");
  s.implementation = sim::load_implementation_preset("vllm_0.14");
  s.workload.task = sim::Task::generate;
  s.workload.prompt_length = 1024;
  s.workload.max_new_tokens = 128;
  const ServingPlan any = plan_serving({s, nullptr, {}});
  REQUIRE(any.result.front.size() > 2);
  for (std::size_t i = 1; i < any.result.front.size(); ++i) {
    const auto &before = any.result.front[i - 1], &after = any.result.front[i];
    CHECK(after.tpot >= before.tpot);
    CHECK(after.tokens_per_second_per_device() > before.tokens_per_second_per_device());
  }
  REQUIRE(any.compared.size() == 2);
  CHECK(any.compared[0].index == any.result.best[sim::ServingObjective::throughput].front().index);
  CHECK(any.compared[0].spending.later_token.total().value > 0);

  ServingPlanChoices choices;
  choices.most_tpot_s = any.result.front[any.result.front.size() / 2].tpot.value;
  choices.objective = sim::ServingObjective::latency;
  choices.picks[0] = any.result.front.front().index;
  const ServingPlan limited = plan_serving({s, nullptr, choices});
  CHECK(limited.result.fitting < any.result.fitting);
  for (const auto& best : limited.result.best)
    for (const sim::ServingCandidate& c : best) CHECK(c.tpot.value <= choices.most_tpot_s);
  REQUIRE(limited.compared.size() == 2);
  CHECK(limited.compared[0].index == *choices.picks[0]);
  CHECK(limited.compared[1].index != *choices.picks[0]);
}

TEST_CASE("the planner draws ways to serve at every size, Apply is one edit") {
  const ImVec2 size = GENERATE(ImVec2{700, 500}, ImVec2{1280, 800});
  sim::Scenario s = tests::small_scenario();
  s.workload.task = sim::Task::generate;
  s.implementation = sim::load_implementation_preset("vllm_0.14");
  tests::NullDesktop desktop(s, size);
  desktop.shell().commands().invoke("maximise.planner");
  desktop.settle_studies();
  const auto& study = desktop.state<PlannerState>().serving_plan;
  REQUIRE(study.result());
  REQUIRE(study.result()->compared.size() == 2);
  for (int tab = 0; tab < 4; ++tab) {
    desktop.state<PlannerState>().tab = tab;
    desktop.frames(2);
    CHECK(GImGui->ErrorCountCurrentFrame == 0);
  }
  const ImGuiWindow* part = window_named(size.x > 1000 ? "/compared_" : "/part_");
  REQUIRE(part);
  const ServingPlan& plan = *study.result();
  const sim::Scenario picked = sim::candidate(plan.space, plan.compared[1].index).scenario;
  const int second = 1;
  const ImGuiID id = ImHashStr("Apply", 0, ImHashData(&second, sizeof second, part->ID));
  auto& document = desktop.shell().document();
  const sim::Scenario before = document.scenario();
  REQUIRE_FALSE(picked == before);
  ImGui::SetWindowFocus("##maximised");
  desktop.frames(1);
  GImGui->NavActivateId = 0;
  ImGui::ActivateItemByID(id);
  desktop.frames(2);
  CHECK(document.scenario() == picked);
  document.undo();
  CHECK(document.scenario() == before);
}
