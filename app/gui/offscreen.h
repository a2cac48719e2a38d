// OpenGL without a display: an EGL context without a surface, and a framebuffer to draw into.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace app::gui {

class Offscreen {
 public:
  // Makes the context current on this thread. Throws NoDisplay where the system has no EGL that can do this.
  Offscreen(int width, int height);
  ~Offscreen();
  Offscreen(const Offscreen&) = delete;
  Offscreen& operator=(const Offscreen&) = delete;

  // Rows from the top, 4 bytes a pixel, red first.
  std::vector<std::uint8_t> read_pixels() const;

 private:
  struct Gl;
  std::unique_ptr<Gl> gl_;
  int width_, height_;
};

}  // namespace app::gui
