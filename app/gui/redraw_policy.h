// When to draw: a while after input, when there is news, and otherwise not at all.
#pragma once
#include <algorithm>

namespace app::gui {

class RedrawPolicy {
 public:
  // Something the user did: hover, press and animation settle within this time.
  void on_input(double now) { draw_until_ = std::max(draw_until_, now + kSettleSeconds); }
  // Something new to show. A couple of frames, since the first may change the layout of the next.
  void on_news() { frames_ = std::max(frames_, kFramesForNews); }

  bool should_draw(double now) const { return frames_ > 0 || now < draw_until_; }
  void drawn() { frames_ = std::max(0, frames_ - 1); }

 private:
  static constexpr double kSettleSeconds = 0.5;
  static constexpr int kFramesForNews = 2;
  double draw_until_ = 0;
  int frames_ = kFramesForNews;
};

}  // namespace app::gui
