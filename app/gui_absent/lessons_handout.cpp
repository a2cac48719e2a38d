// Handouts in a build without GUI libraries, whose figures draw their pictures (RIDGEPOINT_GUI=OFF).
#include "app/gui/panels/lessons_handout.h"

#include "app/gui/desktop.h"
#include "app/gui/print_page.h"

namespace app {
namespace {

[[noreturn]] void draws_nothing() {
  throw NoDisplay(
      "This program was built without what draws pictures: configure it with -DRIDGEPOINT_GUI=ON.");
}

}  // namespace

std::string handout(const lesson::Lesson&, lesson::Predictions&, const HandoutOptions&) {
  draws_nothing();
}

void print_page(const std::string&, const std::filesystem::path&) {
  draws_nothing();
}

}  // namespace app
