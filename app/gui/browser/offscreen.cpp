// A page draws into its canvas alone.
#include "app/gui/offscreen.h"

#include "app/gui/desktop.h"

namespace app::gui {

struct Offscreen::Gl {};

Offscreen::Offscreen(int width, int height) : width_(width), height_(height) {
  throw NoDisplay("A browser draws no pictures beside its page: export the panel as SVG.");
}
Offscreen::~Offscreen() = default;

std::vector<std::uint8_t> Offscreen::read_pixels() const {
  return {};
}

}  // namespace app::gui
