#include "app/gui/panels/lessons_question.h"

#include <misc/cpp/imgui_stdlib.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>

#include "app/gui/panels/lessons_words.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/text.h"

namespace app::gui {
namespace {

constexpr float kBetweenChoices = 24;

class QuestionView {
 public:
  QuestionView(const Look& look, const lesson::ShownQuestion& question, const sim::Scenario& scenario,
               bool in_the_room, LessonAnswer& answer)
      : look_(look),
        c_(look.color()),
        q_(question),
        scenario_(scenario),
        in_the_room_(in_the_room),
        answer_(answer) {}

  // Whether it was locked.
  bool draw() {
    ImGui::BeginGroup();
    text(look_, TextRole::title, c_.warn, "?");
    ImGui::SameLine(0, look_.px(8));
    ImGui::BeginGroup();
    draw_words(look_, q_.ask, TextRole::title);
    q_.choices.empty() ? typed() : chosen();
    if (answer_.locked) {
      const bool right = is_right(), revealed = answer_.text.empty();
      text_wrapped(look_, TextRole::title,
                   right      ? c_.good
                   : revealed ? c_.predicted
                              : c_.bad,
                   (right ? "Right: " : "The answer is ") + q_.answer_text);
      if (!q_.because.empty()) draw_words(look_, q_.because);
    }
    ImGui::EndGroup();
    ImGui::EndGroup();
    return locked_now_;
  }

 private:
  void lock() { answer_.locked = locked_now_ = true; }

  // With the letter that chooses it in the room, and behind it what it comes to, unless its words say that.
  std::string choice_text(std::size_t i, bool locked) const {
    std::string words = lesson::plain(q_.choices[i]);
    if (locked && words.find(q_.values[i]) == std::string::npos) words += "   " + q_.values[i];
    return in_the_room_ ? std::string(1, static_cast<char>('A' + i)) + "  " + words : words;
  }
  // A screen in the room has few lines: choices that fit into one share it.
  bool choices_share_a_line(bool locked) const {
    if (!in_the_room_) return false;
    const TextScope scope(look_, TextRole::body);
    float width = 0;
    for (std::size_t i = 0; i < q_.choices.size(); ++i)
      width += text_size_of(look_, TextRole::body, choice_text(i, locked)).x + ImGui::GetFrameHeight() +
               look_.px(kBetweenChoices);
    return width <= ImGui::GetContentRegionAvail().x;
  }

  void chosen() {
    const bool beside = choices_share_a_line(answer_.locked);
    for (std::size_t i = 0; i < q_.choices.size(); ++i) {
      const std::string number = std::to_string(i);
      const bool picked = answer_.text == number;
      const ImU32 color = !answer_.locked ? picked ? c_.text : c_.dim
                          : q_.right == i ? c_.good
                          : picked        ? c_.bad
                                          : c_.mute;
      ImGui::PushID(static_cast<int>(i));
      ImGui::PushStyleColor(ImGuiCol_Text, color);
      ImGui::PushStyleColor(ImGuiCol_CheckMark, color);
      ImGui::PushStyleColor(ImGuiCol_Border, color);
      ImGui::PushStyleVar(ImGuiStyleVar_FrameBorderSize, look_.px(1));
      ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, {look_.px(4), look_.px(1)});
      {
        const TextScope scope(look_, TextRole::body);
        if (i > 0 && beside) ImGui::SameLine(0, look_.px(kBetweenChoices));
        if (ImGui::RadioButton(choice_text(i, answer_.locked).c_str(), picked) && !answer_.locked)
          answer_.text = number;
      }
      ImGui::PopStyleVar(2);
      ImGui::PopStyleColor(3);
      ImGui::PopID();
    }
    if (answer_.locked) return;
    ImGui::BeginDisabled(answer_.text.empty());
    if (primary_button(look_, "Lock in", c_.predicted)) lock();
    ImGui::EndDisabled();
  }

  void typed() {
    // No field any more, which would keep the keyboard: Enter that reveals also goes to what has the focus.
    if (answer_.locked) {
      if (!answer_.text.empty()) text(look_, TextRole::number, c_.dim, answer_.text);
      return;
    }
    // In a narrow panel the button beside it stays whole.
    const ImGuiStyle& style = ImGui::GetStyle();
    const float button =
        text_size_of(look_, TextRole::body, "Lock in").x + 4 * style.FramePadding.x + style.ItemSpacing.x;
    ImGui::SetNextItemWidth(std::min(look_.px(160), ImGui::GetContentRegionAvail().x - button));
    const bool entered = ImGui::InputTextWithHint("##answer", hint().c_str(), &answer_.text,
                                                  ImGuiInputTextFlags_EnterReturnsTrue);
    ImGui::SameLine();
    const bool pressed = primary_button(look_, "Lock in", c_.predicted);
    std::string problem;
    const bool understood = typed_number(answer_.text, q_, scenario_, problem).has_value();
    if ((entered || pressed) && understood) lock();
    if (!understood && !answer_.text.empty()) text_wrapped(look_, TextRole::caption, c_.warn, problem);
  }

  std::string hint() const {
    const std::string unit = split_unit(q_.answer_text).unit;
    return unit.empty() ? "a number" : "a number, in " + unit;
  }

  bool is_right() const {
    if (q_.right) return answer_.text == std::to_string(*q_.right);
    std::string problem;
    const auto number = typed_number(answer_.text, q_, scenario_, problem);
    return number && is_near_enough(*number, q_);
  }

  const Look& look_;
  const Palette& c_;
  const lesson::ShownQuestion& q_;
  const sim::Scenario& scenario_;
  bool in_the_room_;
  LessonAnswer& answer_;
  bool locked_now_ = false;
};

}  // namespace

std::optional<double> typed_number(const std::string& typed, const lesson::ShownQuestion& question,
                                   const sim::Scenario& scenario, std::string& problem) {
  const lesson::Dimension& asked = question.answer.dimension;
  const std::string unit = split_unit(question.answer_text).unit;
  try {
    const lesson::Expression expression(typed);
    lesson::Predictions predictions;
    const double number = expression.value({scenario, predictions}).number;
    if (expression.dimension() == asked) {
      // "59" of a share that is shown in percent.
      const bool in_percent = unit == "%" && typed.find('%') == std::string::npos && number > 1;
      return in_percent ? number / 100 : number;
    }
    if (!expression.dimension().is_none()) {
      problem = "the answer is " + asked.name() + ", this is " + expression.dimension().name();
      return std::nullopt;
    }
    const lesson::Expression with_unit(typed + " " + unit);
    return with_unit.dimension() == asked ? with_unit.value({scenario, predictions}).number : number;
  } catch (const std::exception& error) {
    problem = error.what();
    return std::nullopt;
  }
}

bool is_near_enough(double number, const lesson::ShownQuestion& question) {
  return std::abs(number - question.answer.number) <= question.tolerance * std::abs(question.answer.number);
}

bool draw_question(const Look& look, const lesson::ShownQuestion& question, const sim::Scenario& scenario,
                   bool in_the_room, LessonAnswer& answer) {
  return QuestionView(look, question, scenario, in_the_room, answer).draw();
}

}  // namespace app::gui
