// When to draw: a while after input, when there is news, at a moment asked for, and otherwise not at all.
#pragma once
#include <algorithm>
#include <limits>

namespace app::gui {

class RedrawPolicy {
 public:
  // Something the user did: hover, press and animation settle within this time, and not in fewer frames than
  // these, however long one takes: ImGui takes a press and its release in different ones.
  void on_input(double now) {
    draw_until_ = std::max(draw_until_, now + kSettleSeconds);
    frames_ = std::max(frames_, kFramesForInput);
  }
  // Something new to show. A couple of frames, since the first may change the layout of the next.
  void on_news() { frames_ = std::max(frames_, kFramesForNews); }
  // Something on screen disappears by itself at this time: draws one frame then.
  void draw_at(double when) { due_ = std::min(due_, when); }

  bool should_draw(double now) const { return frames_ > 0 || now < draw_until_ || now >= due_; }
  void drawn(double now) {
    frames_ = std::max(0, frames_ - 1);
    if (now >= due_) due_ = kNever;
  }
  // How long nothing need be drawn if nothing happens, at most `most`.
  double quiet_for(double now, double most) const { return std::clamp(due_ - now, 0.0, most); }

 private:
  static constexpr double kSettleSeconds = 0.5;
  static constexpr int kFramesForNews = 2, kFramesForInput = 4;
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  double draw_until_ = 0, due_ = kNever;
  int frames_ = kFramesForNews;
};

}  // namespace app::gui
