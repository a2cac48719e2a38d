// Handouts in a build without GUI libraries, whose figures draw their pictures (RIDGEPOINT_GUI=OFF).
#include "app/gui/panels/lessons_handout.h"

#include "app/gui/desktop.h"

namespace app {

std::string handout(const lesson::Lesson&, lesson::Predictions&, const HandoutOptions&) {
  throw NoDisplay(
      "This program was built without what draws pictures: configure it with -DRIDGEPOINT_GUI=ON.");
}

}  // namespace app
