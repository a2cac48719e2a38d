#include "app/gui/window.h"

#include <imgui.h>
#include <imgui_impl_glfw.h>
#include <imgui_impl_opengl3.h>
#include <imgui_internal.h>
#include <implot.h>
#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <utility>

#include "app/gui/desktop.h"
#include "app/gui/redraw_policy.h"

namespace app::gui {
namespace {

// An idle window still looks up this often, without drawing.
constexpr double kIdleSeconds = 0.5;
constexpr int kWidth = 1600, kHeight = 1000;

std::string& glfw_error() {
  static std::string error;
  return error;
}

}  // namespace

struct Window::State {
  GLFWwindow* window = nullptr;
  RedrawPolicy policy;
  std::atomic<bool> news = true;
  bool imgui = false;
  std::vector<std::filesystem::path> dropped;

  static State& of(GLFWwindow* window) { return *static_cast<State*>(glfwGetWindowUserPointer(window)); }
  static void input(GLFWwindow* window) { of(window).policy.on_input(glfwGetTime()); }

  // Set before ImGui's, which calls them in turn.
  void listen() {
    glfwSetWindowUserPointer(window, this);
    glfwSetCursorPosCallback(window, [](GLFWwindow* w, double, double) { input(w); });
    glfwSetCursorEnterCallback(window, [](GLFWwindow* w, int) { input(w); });
    glfwSetMouseButtonCallback(window, [](GLFWwindow* w, int, int, int) { input(w); });
    glfwSetScrollCallback(window, [](GLFWwindow* w, double, double) { input(w); });
    glfwSetKeyCallback(window, [](GLFWwindow* w, int, int, int, int) { input(w); });
    glfwSetCharCallback(window, [](GLFWwindow* w, unsigned) { input(w); });
    glfwSetDropCallback(window, [](GLFWwindow* w, int count, const char** paths) {
      of(w).dropped.assign(paths, paths + count);
      input(w);
    });
    glfwSetWindowFocusCallback(window, [](GLFWwindow* w, int) { input(w); });
    glfwSetWindowRefreshCallback(window, [](GLFWwindow* w) { input(w); });
    glfwSetFramebufferSizeCallback(window, [](GLFWwindow* w, int, int) { input(w); });
    glfwSetWindowContentScaleCallback(window, [](GLFWwindow* w, float, float) { input(w); });
  }

  // A button held on a stepper repeats without further events.
  bool held() const { return imgui && ImGui::IsAnyMouseDown(); }
};

Window::Window() : state_(std::make_unique<State>()) {
  glfwSetErrorCallback([](int, const char* message) { glfw_error() = message; });
  // Asked all the same, Wayland's library writes an error of its own.
  const bool none = std::getenv("DISPLAY") == nullptr && std::getenv("WAYLAND_DISPLAY") == nullptr &&
                    std::getenv("XDG_RUNTIME_DIR") == nullptr;
  if (none) throw NoDisplay("No display could be opened (neither DISPLAY nor WAYLAND_DISPLAY is set).");
  if (!glfwInit()) throw NoDisplay("No display could be opened (" + glfw_error() + ").");
  glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
  glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 3);
  glfwWindowHint(GLFW_OPENGL_PROFILE, GLFW_OPENGL_CORE_PROFILE);
  glfwWindowHint(GLFW_SCALE_TO_MONITOR, GLFW_TRUE);
  glfwWindowHintString(GLFW_X11_CLASS_NAME, "ridgepoint");
  glfwWindowHintString(GLFW_WAYLAND_APP_ID, "ridgepoint");
  int width = kWidth, height = kHeight;
  if (GLFWmonitor* monitor = glfwGetPrimaryMonitor()) {
    int x = 0, y = 0, work_width = 0, work_height = 0;
    glfwGetMonitorWorkarea(monitor, &x, &y, &work_width, &work_height);
    if (work_width > 0) width = std::min(width, work_width);
    if (work_height > 0) height = std::min(height, work_height);
  }
  state_->window = glfwCreateWindow(width, height, "Ridgepoint", nullptr, nullptr);
  if (!state_->window) {
    const std::string why = glfw_error();
    glfwTerminate();
    throw NoDisplay("No window with OpenGL 3.3 could be opened (" + why + ").");
  }
  glfwMakeContextCurrent(state_->window);
  glfwSwapInterval(1);
  state_->listen();
  ImGui::CreateContext();
  ImPlot::CreateContext();
  state_->imgui = true;
  ImGui_ImplGlfw_InitForOpenGL(state_->window, true);
  ImGui_ImplOpenGL3_Init("#version 330");
}

Window::~Window() {
  ImGui_ImplOpenGL3_Shutdown();
  ImGui_ImplGlfw_Shutdown();
  ImPlot::DestroyContext();
  ImGui::DestroyContext();
  glfwDestroyWindow(state_->window);
  glfwTerminate();
}

std::vector<std::filesystem::path> Window::take_dropped() {
  return std::exchange(state_->dropped, {});
}

void Window::wake() {
  state_->news = true;
  glfwPostEmptyEvent();
}

void Window::draw_again_in(double seconds) {
  state_->policy.draw_at(glfwGetTime() + seconds);
}

float Window::display_scale() const {
  float x = 1, y = 1;
  glfwGetWindowContentScale(state_->window, &x, &y);
  return x > 0 ? x : 1;
}

void Window::show_in_address(const std::string&) {}

void Window::files_were_written() {}

void Window::run(std::function<void()> prepare, std::function<bool()> frame) {
  RedrawPolicy& policy = state_->policy;
  bool open = true;
  while (open && !glfwWindowShouldClose(state_->window)) {
    glfwPollEvents();
    if (state_->news.exchange(false)) policy.on_news();
    // ImGui takes in what came at once over several frames, a part in each.
    if (state_->held() || GImGui->InputEventsQueue.Size > 0) policy.on_input(glfwGetTime());
    const bool hidden = glfwGetWindowAttrib(state_->window, GLFW_ICONIFIED) != 0;
    if (hidden || !policy.should_draw(glfwGetTime())) {
      glfwWaitEventsTimeout(hidden ? kIdleSeconds : policy.quiet_for(glfwGetTime(), kIdleSeconds));
      continue;
    }
    prepare();
    ImGui_ImplOpenGL3_NewFrame();
    ImGui_ImplGlfw_NewFrame();
    ImGui::NewFrame();
    open = frame();
    ImGui::Render();
    ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
    if (ImGui::GetIO().ConfigFlags & ImGuiConfigFlags_ViewportsEnable) {  // windows beside this one
      ImGui::UpdatePlatformWindows();
      ImGui::RenderPlatformWindowsDefault();
      glfwMakeContextCurrent(state_->window);
    }
    glfwSwapBuffers(state_->window);
    policy.drawn(glfwGetTime());
  }
}

}  // namespace app::gui
