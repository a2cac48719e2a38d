#include "app/gui/welcome.h"

#include <algorithm>
#include <cmath>

#include "app/gui/panels/lessons_film.h"
#include "app/gui/widgets/parts.h"
#include "app/gui/widgets/text.h"
#include "app/lesson/play.h"

namespace app::gui {
namespace {

constexpr const char* kWindow = "Welcome";
constexpr double kSeconds = 8;  // that a picture takes, over and over

std::shared_ptr<const lesson::Film> film_of(const std::string& id, lesson::Predictions& predictions) {
  const lesson::Lesson one = lesson::load_lesson(lesson::lesson_directory() / (id + ".md"));
  for (std::size_t step = 0; step < one.steps.size(); ++step) {
    const auto& blocks = one.steps[step].blocks;
    if (std::ranges::none_of(blocks,
                             [](const auto& b) { return std::holds_alternative<lesson::MovingPicture>(b); }))
      continue;
    const lesson::ShownStep shown = lesson::show(one, step, lesson::scenario_at(one, step), predictions);
    for (const lesson::ShownBlock& block : shown.blocks)
      if (const auto* film = std::get_if<lesson::ShownFilm>(&block)) return film->film;
  }
  return nullptr;
}

}  // namespace

const std::array<WelcomeCard, kWelcomeCards>& welcome_cards() {
  static constexpr std::array<WelcomeCard, kWelcomeCards> cards = {{
      {"Learn", "The first lesson that you have not done: it asks, predicts and measures", "pipeline",
       "lesson.learn"},
      {"Play a mission", "Train 70B on 64 devices: bronze, silver or gold", "memory-of-training",
       "lesson.open=mission-70b"},
      {"Run it here", "Train and generate on this machine, beside the prediction", "batching", "panel.live"},
      {"Plan your own", "Search all ways to divide a model over devices", "context-parallel",
       "panel.planner"},
  }};
  return cards;
}

Welcome::Welcome(Studies& studies)
    : films_(studies.add<int, Films>([](int, const auto& course) {
        Films films;
        lesson::Predictions predictions;
        for (const WelcomeCard& card : welcome_cards()) {
          if (course.stopped()) break;
          films.push_back(film_of(card.film_of, predictions));
        }
        return films;
      })) {}

void Welcome::open() {
  open_ = opening_ = true;
  seconds_ = 0;
  films_.ask(0);
}

const WelcomeCard* Welcome::draw(const Look& look, bool playing) {
  if (!open_) return nullptr;
  if (opening_) ImGui::OpenPopup(kWindow);
  opening_ = false;
  const ImGuiViewport* const viewport = ImGui::GetMainViewport();
  const ImVec2 size = {std::min(look.px(1000), viewport->Size.x - look.px(40)),
                       std::min(look.px(690), viewport->Size.y - look.px(40))};
  ImGui::SetNextWindowPos(
      {viewport->Pos.x + (viewport->Size.x - size.x) / 2, viewport->Pos.y + (viewport->Size.y - size.y) / 2});
  ImGui::SetNextWindowSize(size);
  const WelcomeCard* chosen = nullptr;
  if (!ImGui::BeginPopupModal(kWindow, nullptr, ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove)) {
    open_ = false;
    return nullptr;
  }
  const Palette& c = look.color();
  if (playing) seconds_ += static_cast<double>(ImGui::GetIO().DeltaTime);
  text(look, TextRole::heading, c.text, "What does a language model cost to train and to run?");
  text(look, TextRole::body, c.dim,
       "Predicted at once, measured by real kernels on your machine. Begin anywhere:");
  ImGui::Dummy({0, look.px(6)});
  const float gap = look.px(14), foot = ImGui::GetFrameHeight() + look.px(12);
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const ImVec2 card_size = {(room.x - gap) / 2, (room.y - foot - gap) / 2};
  const Films* const films = films_.result();
  for (std::size_t i = 0; i < kWelcomeCards; ++i) {
    const WelcomeCard& card = welcome_cards()[i];
    if (i % 2 == 1) ImGui::SameLine(0, gap);
    ImGui::PushID(card.title);
    const ImVec2 least = ImGui::GetCursorScreenPos();
    if (ImGui::IsWindowAppearing() && i == 0) ImGui::SetKeyboardFocusHere();
    if (ImGui::InvisibleButton("card", card_size, ImGuiButtonFlags_EnableNav)) chosen = &card;
    const bool hot = ImGui::IsItemHovered() || ImGui::IsItemFocused();
    const ImVec2 most = {least.x + card_size.x, least.y + card_size.y};
    ImDrawList* const list = ImGui::GetWindowDrawList();
    list->AddRectFilled(least, most, hot ? c.raised : c.background, look.px(10));
    list->AddRect(least, most, hot ? c.predicted : c.border, look.px(10), 0, look.px(1));
    const float inset = look.px(14), words = look.px(52);
    draw_text(list, look, TextRole::title, {least.x + inset, most.y - words + look.px(6)}, c.text, card.title,
              {0, 0});
    draw_text(list, look, TextRole::caption, {least.x + inset, most.y - look.px(18)}, c.dim,
              fitted(look, TextRole::caption, card.says, card_size.x - 2 * inset), {0, .5f});
    // One after the other begins a little later, or all would move alike.
    if (films && i < films->size() && (*films)[i])
      draw_film_at(list, look, *(*films)[i],
                   std::fmod(seconds_ / kSeconds + .35 + .2 * static_cast<double>(i), 1.0),
                   {least.x + inset, least.y + inset}, {most.x - inset, most.y - words - look.px(4)});
    ImGui::PopID();
    if (i % 2 == 1 && i + 1 < kWelcomeCards) ImGui::Dummy({0, gap - ImGui::GetStyle().ItemSpacing.y});
  }
  const bool skipped = ImGui::Button("Skip") || ImGui::IsKeyPressed(ImGuiKey_Escape);
  if (skipped || chosen) {
    open_ = false;
    ImGui::CloseCurrentPopup();
  }
  ImGui::EndPopup();
  return chosen;
}

}  // namespace app::gui
