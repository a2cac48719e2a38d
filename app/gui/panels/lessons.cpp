// Lessons: a step at a time, beside the panels that it talks about. Its numbers are those of the scenario of
// the moment; its questions show nothing before they are answered.
#include "app/gui/panels/lessons.h"

#include <imgui_internal.h>

#include <algorithm>

#include "app/counted.h"
#include "app/gui/panels/empty_state.h"
#include "app/gui/panels/lessons_notes.h"
#include "app/gui/panels/lessons_step.h"
#include "app/gui/panels/lessons_words.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/parts.h"
#include "app/gui/widgets/text.h"

namespace app::gui {
namespace {

using Context = ContextWith<LessonsState>;

constexpr const char* kPanel = "lessons";
constexpr float kTextWidth = 760, kLargeType = 1.75f;
constexpr ImVec2 kLessonRoom = {420, 540};  // points: words beside a picture, a question below it
constexpr float kFade = 22;                 // of a line at the edge of what scrolls

// The lessons of a chapter, by where they stand among the entries.
struct Chapter {
  std::size_t begin = 0, end = 0;
};

// A file that is wrong stands in the chapter before it.
std::vector<Chapter> chapters_of(const std::vector<LessonsState::Entry>& entries) {
  std::vector<Chapter> chapters;
  const std::string* name = nullptr;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto& lesson = entries[i].lesson;
    if (chapters.empty() || (lesson && (!name || *name != lesson->chapter))) chapters.push_back({i, i});
    if (lesson) name = &lesson->chapter;
    chapters.back().end = i + 1;
  }
  return chapters;
}

void draw_chapter_title(const Context& context, const lesson::Lesson& first) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const LessonsState& state = context.state;
  ImGui::Dummy({0, look.px(6)});
  text(look, TextRole::title, c.text, first.chapter);
  if (!first.mission) return;
  const auto missions = std::ranges::count_if(
      state.entries, [](const auto& other) { return other.lesson && other.lesson->mission; });
  ImGui::SameLine(0, look.px(10));
  text(look, TextRole::caption, c.dim,
       "score " + std::to_string(score_of(state.progress)) + " of " +
           std::to_string(missions * static_cast<std::int64_t>(lesson::kTiers.size())));
}

// How far a lesson was gone through; before that how long it is.
std::string state_text(const LessonsState& state, const lesson::Lesson& one, bool with_steps) {
  const std::size_t steps = state.steps_seen(one);
  if (one.mission && state.is_done(one))
    return std::string(lesson::kTiers[static_cast<std::size_t>(state.progress.tiers.at(one.id))]);
  if (one.mission || steps == 0)
    return (with_steps ? counted(std::ssize(one.steps), "step") + ", " : "") + std::to_string(one.minutes) +
           " min";
  return state.is_done(one) ? "done" : std::to_string(steps) + " of " + std::to_string(one.steps.size());
}

void draw_entry(const Context& context, std::size_t index, float width) {
  const Look& look = context.look;
  const Palette& c = look.color();
  LessonsState& state = context.state;
  const LessonsState::Entry& entry = state.entries[index];
  if (!entry.lesson) {
    ImGui::PushTextWrapPos(ImGui::GetCursorPosX() + width);
    text(look, TextRole::caption, c.bad, entry.problem);
    return ImGui::PopTextWrapPos();
  }
  const lesson::Lesson& one = *entry.lesson;
  constexpr float kRoomForSteps = 420;
  const std::string done = state_text(state, one, width >= look.px(kRoomForSteps));
  const ImVec2 begin = ImGui::GetCursorScreenPos();
  const float height = look.px(30);
  if (pressable("open", {width, height})) state.open_lesson(index);
  ImDrawList* const list = ImGui::GetWindowDrawList();
  list->AddRectFilled(begin, {begin.x + width, begin.y + height - look.px(4)},
                      ImGui::IsItemHovered() ? c.raised : c.panel, look.px(6));
  const float middle = begin.y + (height - look.px(4)) / 2;
  const float room = width - look.px(40) - text_size_of(look, TextRole::number, done).x;
  draw_text(list, look, TextRole::body, {begin.x + look.px(10), middle}, c.text,
            fitted(look, TextRole::body, (one.mission ? "Mission: " : "") + one.title, room), {0, .5f});
  draw_text(list, look, TextRole::number, {begin.x + width - look.px(10), middle},
            state.is_done(one) ? c.good : c.dim, done, {1, .5f});
}

// Chapters in as many columns as have room; a chapter is not parted.
void draw_library(const Context& context) {
  const Look& look = context.look;
  LessonsState& state = context.state;
  if (state.entries.empty())
    return draw_empty_state(
        context, "No lessons",
        "There are none in presets/lessons. A lesson is a file; its README says how to write one.");
  constexpr float kLeastColumn = 480, kGap = 24;
  constexpr std::size_t kLinesOfTitle = 1;
  const std::vector<Chapter> chapters = chapters_of(state.entries);
  const float all_room = ImGui::GetContentRegionAvail().x, gap = look.px(kGap);
  const std::size_t columns = std::clamp<std::size_t>(
      static_cast<std::size_t>((all_room + gap) / (look.px(kLeastColumn) + gap)), 1, chapters.size());
  const float width =
      std::min(std::floor((all_room - gap * static_cast<float>(columns - 1)) / static_cast<float>(columns)),
               look.px(kTextWidth));
  const std::size_t lines = state.entries.size() + chapters.size() * kLinesOfTitle;
  std::size_t next = 0, before = 0;  // chapters, and their lines
  for (std::size_t column = 0; column < columns; ++column) {
    if (column > 0) ImGui::SameLine(0, gap);
    ImGui::PushID(static_cast<int>(column));
    ImGui::BeginGroup();
    for (; next < chapters.size(); ++next) {
      const Chapter& chapter = chapters[next];
      const std::size_t more = chapter.end - chapter.begin + kLinesOfTitle;
      // To the column in whose share of all lines its middle lies.
      if ((2 * before + more) * columns > 2 * lines * (column + 1)) break;
      if (const auto& first = state.entries[chapter.begin].lesson) draw_chapter_title(context, *first);
      for (std::size_t i = chapter.begin; i < chapter.end; ++i) {
        ImGui::PushID(static_cast<int>(i));
        draw_entry(context, i, width);
        ImGui::PopID();
      }
      before += more;
    }
    ImGui::EndGroup();
    ImGui::PopID();
  }
}

// Back to the list; where in the lesson; larger type; notes.
void draw_header(const Context& context, const Look& look, const lesson::Lesson& lesson) {
  const Palette& c = look.color();
  LessonsState& state = context.state;
  if (state.presented()) {  // keys walk: no place for buttons
    text_fitted(look, TextRole::caption, c.dim,
                std::to_string(state.step + 1) + " of " + std::to_string(lesson.steps.size()) + " \u00B7 " +
                    lesson.chapter + " \u00B7 " + lesson.title,
                ImGui::GetContentRegionAvail().x);
    return text_wrapped(look, TextRole::heading, c.text, lesson.steps[state.step].title);
  }
  if (ImGui::Button("\u2190 Lessons")) state.current.reset();
  ImGui::SameLine();
  if (ImGui::Button(state.large_type ? "Small type" : "Large type")) state.large_type = !state.large_type;
  if (!lesson.steps[state.step].notes.empty()) {
    ImGui::SameLine();
    if (ImGui::Button(state.notes ? "Hide notes" : "Notes")) state.notes = !state.notes;
  }
  ImGui::SameLine();
  if (ImGui::Button("Reset step")) state.reset_step();
  ImGui::Dummy({0, look.px(2)});
  text_wrapped(look, TextRole::caption, c.dim, lesson.chapter + " \u00B7 " + lesson.title);
  text_wrapped(look, TextRole::heading, c.text, lesson.steps[state.step].title);
  ImGui::Dummy({0, look.px(4)});
}

void draw_footer(const Context& context, const Look& look, const lesson::Lesson& lesson) {
  LessonsState& state = context.state;
  ImGui::BeginDisabled(!state.can_walk(-1));
  if (ImGui::Button("Back")) state.walk(-1);
  ImGui::EndDisabled();
  ImGui::SameLine();
  text(look, TextRole::number, look.color().dim,
       std::to_string(state.step + 1) + " of " + std::to_string(lesson.steps.size()));
  ImGui::SameLine();
  const bool last = !state.can_walk(1);
  if (primary_button(look, last ? "Done" : "Next", look.color().predicted)) {
    if (last)
      state.current.reset();
    else
      state.walk(1);
  }
}

// The window that scrolls is the current one.
void scroll_as_asked(const Look& look, LessonsState& state) {
  LessonsState::Scroll& scroll = state.scroll;
  const float now = ImGui::GetScrollY();
  if (std::exchange(scroll.to_top, false)) ImGui::SetScrollY(0);
  if (const float screens = std::exchange(scroll.screens, 0.0f); screens != 0)
    ImGui::SetScrollY(now + screens * ImGui::GetWindowHeight());
  if (scroll.frames > 0) {
    --scroll.frames;
    const float question = std::max(0.0f, now + scroll.y - ImGui::GetWindowPos().y - look.px(kFade));
    // A little that would be left is seen, too: the fade above the question has room for it.
    const float end = ImGui::GetScrollMaxY();
    ImGui::SetScrollY(end - question < look.px(kFade) / 2 ? std::max(question, end) : question);
  }
}

// What goes on beyond an edge of the window that scrolls fades there, rather than end within a letter; less
// where next to nothing does. Drawn in the child that holds all of it, since that is drawn last.
void fade_at_edges(const Look& look) {
  const ImGuiWindow& scrolled = *ImGui::GetCurrentWindow()->ParentWindow;
  const ImRect seen = scrolled.InnerRect;
  const float height = look.px(kFade);
  const auto fade = [&](float beyond, float top, bool upwards) {
    const ImU32 color = look.color().panel, none = with_alpha(color, 0),
                full = with_alpha(color, std::clamp(beyond / (height / 6), 0.0f, 1.0f));
    const ImU32 above = upwards ? full : none, below = upwards ? none : full;
    ImGui::GetWindowDrawList()->AddRectFilledMultiColor({seen.Min.x, top}, {seen.Max.x, top + height}, above,
                                                        above, below, below);
  };
  fade(scrolled.Scroll.y, seen.Min.y, true);
  fade(scrolled.ScrollMax.y - scrolled.Scroll.y, seen.Max.y - height, false);
}

// Behind the last step, where all is answered.
void draw_class_guesses(const Look& look, LessonsState& state,
                        const std::shared_ptr<const lesson::Lesson>& lesson) {
  if (!state.class_guesses || !state.class_guesses->has(lesson->id)) return;
  const GuessRequest request{lesson, state.class_guesses};
  state.guessed.follow(request);
  if (!state.guessed.progress().failure.empty())
    return text_wrapped(look, TextRole::caption, look.color().bad,
                        as_sentence(state.guessed.progress().failure));
  const auto* const questions = state.guessed.result();
  if (!questions || !(state.guessed.request() == request)) return;
  ImGui::Dummy({0, look.px(8)});
  draw_guesses(look, *questions);
}

void draw_step(const Context& context, const Look& look,
               const std::shared_ptr<const lesson::Lesson>& lesson) {
  LessonsState& state = context.state;
  const Palette& c = look.color();
  const lesson::Step& step = lesson->steps[state.step];
  state.take_runs();
  state.study.follow({lesson, state.step, state.entering ? std::nullopt : std::optional(context.scenario),
                      state.entering ? nullptr : state.measured_of(*lesson, state.step)});
  draw_header(context, look, *lesson);
  const LessonView* const view = state.study.result();
  const bool is_of_step =
      view && state.study.request().lesson == lesson && state.study.request().step == state.step;
  if (state.entering && is_of_step && !state.study.request().scenario) {
    state.entering = false;
    if (!(view->scenario == context.scenario)) context.load("lesson: " + step.title, view->scenario);
    // Maximised, the lesson stands alone.
    if (context.view.maximised.empty() && !step.panel.empty()) {
      context.invoke("panel." + step.panel);
      context.invoke("panel.lessons");
    }
  }
  const float footer = state.presented() ? 0 : ImGui::GetFrameHeightWithSpacing() + look.px(8);
  // Keys go to what is in it, not to the child as a whole.
  ImGui::BeginChild("step", {0, -footer}, ImGuiChildFlags_NavFlattened);
  ImGui::BeginChild("text",
                    {std::min(ImGui::GetContentRegionAvail().x - look.px(12), look.px(kTextWidth)), 0},
                    ImGuiChildFlags_AutoResizeY | ImGuiChildFlags_NavFlattened);
  if (!state.study.progress().failure.empty()) {
    text_wrapped(look, TextRole::body, c.bad, as_sentence(state.study.progress().failure));
  } else if (!is_of_step) {
    text(look, TextRole::caption, c.mute, "The numbers of this step are on their way.");
  } else {
    const bool waits = draw_blocks(context, look, *lesson, *view);
    if (const auto tier = lesson::tier_reached(view->shown)) {
      if (!state.entering) state.keep(*lesson, *tier);
      const bool all = std::ranges::none_of(view->shown.blocks, [](const lesson::ShownBlock& block) {
        const auto* const goal = std::get_if<lesson::ShownGoal>(&block);
        return goal && !goal->holds;
      });
      text_wrapped(
          look, TextRole::heading, c.good,
          title_of(*tier) + (all ? ": every goal is reached." : " is reached. There is a better one."));
    }
    const std::vector<lesson::ShownParagraph>& hints = view->shown.hints;
    for (std::size_t i = 0; i < std::min(state.hints_shown, hints.size()); ++i)
      text_wrapped(look, TextRole::body, c.dim, "Hint: " + lesson::plain(hints[i].words));
    if (state.hints_shown < hints.size() && ImGui::Button(state.hints_shown == 0 ? "A hint" : "Another hint"))
      ++state.hints_shown;
    if (!view->shown.take_home.empty() && !waits) {
      ImGui::Dummy({0, look.px(4)});
      const ImVec2 begin = ImGui::GetCursorScreenPos();
      ImGui::Indent(look.px(12));
      draw_words(look, view->shown.take_home, TextRole::title);
      ImGui::Unindent(look.px(12));
      ImGui::GetWindowDrawList()->AddRectFilled(begin, {begin.x + look.px(3), ImGui::GetItemRectMax().y},
                                                c.predicted);
    }
    if (!waits && state.step + 1 == lesson->steps.size()) draw_class_guesses(look, state, lesson);
  }
  fade_at_edges(look);
  ImGui::EndChild();
  scroll_as_asked(look, state);
  ImGui::EndChild();
  if (!state.presented()) draw_footer(context, look, *lesson);
  if (state.notes && is_of_step && !step.notes.empty()) draw_notes(context, *view);
}

// All that is drawn while it lives is this much larger.
class LargerType {
 public:
  explicit LargerType(float factor) : before_(ImGui::GetStyle().FontScaleMain) {
    ImGui::GetStyle().FontScaleMain = before_ * factor;
    ImGui::PushFont(nullptr, 0);
  }
  ~LargerType() {
    ImGui::PopFont();
    ImGui::GetStyle().FontScaleMain = before_;
  }

 private:
  float before_;
};

std::string caption(const PanelContext&) {
  return "";
}

void draw(const Context& context) {
  LessonsState& state = context.state;
  state.reload();
  if (context.view.maximised == kPanel) {
    state.presented_in = ImGui::GetFrameCount();
    // Keys choose by letters: a frame around the first choice would look like one that was made.
    ImGui::SetNavCursorVisible(false);
  }
  if (!state.open_now()) context.view.room.erase(kPanel);
  if (!state.current || *state.current >= state.entries.size()) return draw_library(context);
  const LessonsState::Entry& entry = state.entries[*state.current];
  if (!entry.lesson) {
    if (ImGui::Button("\u2190 Lessons")) state.current.reset();
    return text_wrapped(context.look, TextRole::body, context.look.color().bad, entry.problem);
  }
  context.view.room[kPanel] = kLessonRoom;
  state.step = std::min(state.step, entry.lesson->steps.size() - 1);
  const std::shared_ptr<const lesson::Lesson> lesson = entry.lesson;
  if (!state.large_type || state.presented()) return draw_step(context, context.look, lesson);
  Look large = context.look;
  large.scale *= kLargeType;
  const LargerType larger(kLargeType);
  draw_step(context, large, lesson);
}

}  // namespace

extern const PanelEntry lessons_panel = {kPanel,
                                         "Lessons",
                                         "a step at a time: ask, predict, measure",
                                         Dock::right,
                                         panel_of<LessonsState, caption, draw>,
                                         false,
                                         false};

}  // namespace app::gui
