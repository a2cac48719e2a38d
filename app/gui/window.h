// The window: OpenGL, input, and the loop that draws when there is a reason to. By GLFW, or as a page of a
// browser, in its canvas.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace app::gui {

class Window {
 public:
  // Throws NoDisplay. Makes the ImGui and ImPlot contexts, which live as long as the window.
  Window();
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // Call from any thread: there is something new to draw.
  void wake();
  // Call within a frame: something that it shows must disappear after this time.
  void draw_again_in(double seconds);
  float display_scale() const;
  // Files that were dropped on the window since, and a scenario that the page's address names.
  std::vector<std::filesystem::path> take_dropped();
  // A page's address opens what it shows: the scenario, as JSON. Other windows have no address.
  void show_in_address(const std::string& scenario);
  // What is kept between starts was written.
  void files_were_written();

  // Runs until the window is closed or `frame` returns false. `prepare` runs before ImGui's new frame,
  // `frame` within it. A page goes on after this returns, so the functions own what they need.
  void run(std::function<void()> prepare, std::function<bool()> frame);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace app::gui
