// How far work in another process is, in words for the line below a button.
#pragma once
#include <cmath>
#include <string>

#include "sim/format.h"
#include "sim/report/events.h"

namespace app::gui {

// "standard, run 1 of 2, about 12 s left".
inline std::string words_of(const sim::ProgressEvent& progress) {
  return progress.what +
         (progress.left.value > 0
              ? ", about " + sim::format(sim::Seconds{std::ceil(progress.left.value)}) + " left"
              : "");
}

}  // namespace app::gui
