// A sentence over the desktop for a few seconds: "Copied".
#pragma once
#include <optional>
#include <string>

#include "app/gui/theme.h"

namespace app::gui {

class Toast {
 public:
  void say(std::string words);
  // Seconds until it goes, if it is shown.
  std::optional<double> changes_in() const;
  void draw(const Look& look) const;

 private:
  std::string words_;
  double until_ = 0;
};

}  // namespace app::gui
