// The window: GLFW, OpenGL 3, and the loop that draws when there is a reason to.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

namespace app::gui {

class Window {
 public:
  // Throws NoDisplay. Makes the ImGui and ImPlot contexts, which live as long as the window.
  Window();
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // From any thread: there is something new to draw.
  void wake();
  // From within a frame: something that it shows is to go after this time.
  void draw_again_in(double seconds);
  float display_scale() const;
  // Files that were dropped on the window since.
  std::vector<std::filesystem::path> take_dropped();

  // Until the window is closed or `frame` returns false. `prepare` runs before ImGui's new frame, `frame`
  // within it.
  void run(const std::function<void()>& prepare, const std::function<bool()>& frame);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace app::gui
