// The first start: four moving pictures, each drawn from a plan, each of which opens something. It can be
// skipped, and does not come again.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/gui/jobs/study.h"
#include "app/gui/theme.h"
#include "app/lesson/film.h"

namespace app::gui {

struct WelcomeCard {
  const char* title;
  const char* says;
  const char* film_of;  // the lesson whose first moving picture it shows
  const char* command;  // that it invokes
};
inline constexpr std::size_t kWelcomeCards = 4;
const std::array<WelcomeCard, kWelcomeCards>& welcome_cards();

class Welcome {
 public:
  explicit Welcome(Studies& studies);
  void open();
  bool is_open() const { return open_; }
  // The card that was chosen in this frame. `playing`: the pictures move.
  const WelcomeCard* draw(const Look& look, bool playing);

 private:
  using Films = std::vector<std::shared_ptr<const lesson::Film>>;  // of the cards; null: none
  Study<int, Films>& films_;
  bool open_ = false, opening_ = false;
  double seconds_ = 0;  // since it was opened
};

}  // namespace app::gui
