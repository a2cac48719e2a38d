#include "app/gui/window.h"

#include <emscripten/html5.h>
#include <imgui.h>
#include <imgui_impl_opengl3.h>
#include <imgui_internal.h>
#include <implot.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string_view>
#include <utility>

#include "app/gui/browser/between_frames.h"
#include "app/gui/browser/page.h"
#include "app/gui/desktop.h"
#include "app/gui/redraw_policy.h"

namespace app::gui {
namespace {

constexpr const char* kCanvas = "#canvas";

// A page has one window, to which it may give something before it is there.
std::vector<std::filesystem::path> given_files;
std::string clipboard;
bool news = true;

double seconds() {
  return emscripten_get_now() / 1000;
}

// By the place of a key (KeyboardEvent.code of the UI Events specification), as GLFW names them, too; letters
// and digits by what is printed on them, so that Ctrl+Z is where the user's keyboard has it.
ImGuiKey key_of(const EmscriptenKeyboardEvent& event) {
  const std::string_view code = event.code, printed = event.key;
  if (printed.size() == 1) {
    const auto letter = static_cast<char>(std::tolower(static_cast<unsigned char>(printed[0])));
    if (letter >= 'a' && letter <= 'z') return static_cast<ImGuiKey>(ImGuiKey_A + (letter - 'a'));
    if (letter >= '0' && letter <= '9' && !code.starts_with("Numpad"))
      return static_cast<ImGuiKey>(ImGuiKey_0 + (letter - '0'));
  }
  if (code.size() == 4 && code.starts_with("Key")) return static_cast<ImGuiKey>(ImGuiKey_A + (code[3] - 'A'));
  if (code.size() == 6 && code.starts_with("Digit"))
    return static_cast<ImGuiKey>(ImGuiKey_0 + (code[5] - '0'));
  if (code.size() == 7 && code.starts_with("Numpad") && code[6] >= '0' && code[6] <= '9')
    return static_cast<ImGuiKey>(ImGuiKey_Keypad0 + (code[6] - '0'));
  if (code.size() >= 2 && code[0] == 'F' && code[1] >= '1' && code[1] <= '9')
    return static_cast<ImGuiKey>(ImGuiKey_F1 + std::atoi(event.code + 1) - 1);
  struct Named {
    std::string_view code;
    ImGuiKey key;
  };
  static constexpr Named kNamed[] = {{"Tab", ImGuiKey_Tab},
                                     {"ArrowLeft", ImGuiKey_LeftArrow},
                                     {"ArrowRight", ImGuiKey_RightArrow},
                                     {"ArrowUp", ImGuiKey_UpArrow},
                                     {"ArrowDown", ImGuiKey_DownArrow},
                                     {"PageUp", ImGuiKey_PageUp},
                                     {"PageDown", ImGuiKey_PageDown},
                                     {"Home", ImGuiKey_Home},
                                     {"End", ImGuiKey_End},
                                     {"Insert", ImGuiKey_Insert},
                                     {"Delete", ImGuiKey_Delete},
                                     {"Backspace", ImGuiKey_Backspace},
                                     {"Space", ImGuiKey_Space},
                                     {"Enter", ImGuiKey_Enter},
                                     {"Escape", ImGuiKey_Escape},
                                     {"ControlLeft", ImGuiKey_LeftCtrl},
                                     {"ControlRight", ImGuiKey_RightCtrl},
                                     {"ShiftLeft", ImGuiKey_LeftShift},
                                     {"ShiftRight", ImGuiKey_RightShift},
                                     {"AltLeft", ImGuiKey_LeftAlt},
                                     {"AltRight", ImGuiKey_RightAlt},
                                     {"MetaLeft", ImGuiKey_LeftSuper},
                                     {"MetaRight", ImGuiKey_RightSuper},
                                     {"ContextMenu", ImGuiKey_Menu},
                                     {"Quote", ImGuiKey_Apostrophe},
                                     {"Comma", ImGuiKey_Comma},
                                     {"Minus", ImGuiKey_Minus},
                                     {"Period", ImGuiKey_Period},
                                     {"Slash", ImGuiKey_Slash},
                                     {"Semicolon", ImGuiKey_Semicolon},
                                     {"Equal", ImGuiKey_Equal},
                                     {"BracketLeft", ImGuiKey_LeftBracket},
                                     {"Backslash", ImGuiKey_Backslash},
                                     {"BracketRight", ImGuiKey_RightBracket},
                                     {"Backquote", ImGuiKey_GraveAccent},
                                     {"NumpadDecimal", ImGuiKey_KeypadDecimal},
                                     {"NumpadDivide", ImGuiKey_KeypadDivide},
                                     {"NumpadMultiply", ImGuiKey_KeypadMultiply},
                                     {"NumpadSubtract", ImGuiKey_KeypadSubtract},
                                     {"NumpadAdd", ImGuiKey_KeypadAdd},
                                     {"NumpadEnter", ImGuiKey_KeypadEnter},
                                     {"NumpadEqual", ImGuiKey_KeypadEqual}};
  const auto* const found =
      std::find_if(std::begin(kNamed), std::end(kNamed), [&](const Named& one) { return one.code == code; });
  return found == std::end(kNamed) ? ImGuiKey_None : found->key;
}

// One character of UTF-8, and no name of a key.
bool is_text(std::string_view key) {
  const auto begins = [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; };
  return !key.empty() && std::count_if(key.begin(), key.end(), begins) == 1;
}

// What the browser does with it, it goes on doing: to reload, to open a tab, to look into the page; and
// Ctrl+V, which it answers with what is pasted.
bool is_the_browsers(const EmscriptenKeyboardEvent& event) {
  const std::string_view code = event.code;
  if (code == "F5" || code == "F12") return true;
  return (event.ctrlKey || event.metaKey) && (code == "KeyR" || code == "KeyT" || code == "KeyW" ||
                                              code == "KeyV" || (code == "KeyI" && event.shiftKey));
}

const char* css_cursor(ImGuiMouseCursor cursor) {
  switch (cursor) {
    case ImGuiMouseCursor_None:
      return "none";
    case ImGuiMouseCursor_TextInput:
      return "text";
    case ImGuiMouseCursor_ResizeAll:
      return "move";
    case ImGuiMouseCursor_ResizeNS:
      return "ns-resize";
    case ImGuiMouseCursor_ResizeEW:
      return "ew-resize";
    case ImGuiMouseCursor_ResizeNESW:
      return "nesw-resize";
    case ImGuiMouseCursor_ResizeNWSE:
      return "nwse-resize";
    case ImGuiMouseCursor_Hand:
      return "pointer";
    case ImGuiMouseCursor_NotAllowed:
      return "not-allowed";
    default:
      return "default";
  }
}

}  // namespace

struct Window::State {
  EMSCRIPTEN_WEBGL_CONTEXT_HANDLE context = 0;
  RedrawPolicy policy;
  int width = 0, height = 0;
  double scale = 1, drawn_at = 0;
  ImGuiMouseCursor cursor = ImGuiMouseCursor_Arrow;
  std::function<void()> prepare;
  std::function<bool()> frame;

  void input() { policy.on_input(seconds()); }

  void listen();
  bool draw();
};

void Window::State::listen() {
  emscripten_set_mousemove_callback(EMSCRIPTEN_EVENT_TARGET_WINDOW, this, EM_FALSE,
                                    [](int, const EmscriptenMouseEvent* event, void* state) {
                                      auto& self = *static_cast<State*>(state);
                                      self.input();
                                      ImGui::GetIO().AddMousePosEvent(
                                          static_cast<float>(event->clientX * self.scale),
                                          static_cast<float>(event->clientY * self.scale));
                                      return EM_FALSE;
                                    });
  const auto button = [](int, const EmscriptenMouseEvent* event, bool down, void* state) {
    auto& self = *static_cast<State*>(state);
    self.input();
    constexpr int kOfImGui[] = {ImGuiMouseButton_Left, ImGuiMouseButton_Middle, ImGuiMouseButton_Right};
    if (event->button >= std::size(kOfImGui)) return EM_FALSE;
    ImGui::GetIO().AddMousePosEvent(static_cast<float>(event->clientX * self.scale),
                                    static_cast<float>(event->clientY * self.scale));
    ImGui::GetIO().AddMouseButtonEvent(kOfImGui[event->button], down);
    return EM_FALSE;
  };
  static const auto the_button = button;
  emscripten_set_mousedown_callback(kCanvas, this, EM_FALSE,
                                    [](int type, const EmscriptenMouseEvent* event, void* state) {
                                      return the_button(type, event, true, state);
                                    });
  emscripten_set_mouseup_callback(EMSCRIPTEN_EVENT_TARGET_WINDOW, this, EM_FALSE,
                                  [](int type, const EmscriptenMouseEvent* event, void* state) {
                                    return the_button(type, event, false, state);
                                  });
  emscripten_set_wheel_callback(
      kCanvas, this, EM_FALSE, [](int, const EmscriptenWheelEvent* event, void* state) {
        static_cast<State*>(state)->input();
        // A step of a wheel is 100 pixels in most browsers, or three lines.
        const double step = event->deltaMode == DOM_DELTA_PIXEL  ? 100
                            : event->deltaMode == DOM_DELTA_LINE ? 3
                                                                 : 1;
        ImGui::GetIO().AddMouseWheelEvent(static_cast<float>(-event->deltaX / step),
                                          static_cast<float>(-event->deltaY / step));
        return EM_TRUE;
      });
  static const auto key = [](const EmscriptenKeyboardEvent* event, bool down, void* state) {
    static_cast<State*>(state)->input();
    ImGuiIO& io = ImGui::GetIO();
    io.AddKeyEvent(ImGuiMod_Ctrl, event->ctrlKey);
    io.AddKeyEvent(ImGuiMod_Shift, event->shiftKey);
    io.AddKeyEvent(ImGuiMod_Alt, event->altKey);
    io.AddKeyEvent(ImGuiMod_Super, event->metaKey);
    if (is_the_browsers(*event)) return EM_FALSE;
    if (const ImGuiKey known = key_of(*event); known != ImGuiKey_None) io.AddKeyEvent(known, down);
    if (down && !event->ctrlKey && !event->metaKey && is_text(event->key))
      io.AddInputCharactersUTF8(event->key);
    return EM_TRUE;
  };
  emscripten_set_keydown_callback(
      EMSCRIPTEN_EVENT_TARGET_WINDOW, this, EM_FALSE,
      [](int, const EmscriptenKeyboardEvent* event, void* state) { return key(event, true, state); });
  emscripten_set_keyup_callback(
      EMSCRIPTEN_EVENT_TARGET_WINDOW, this, EM_FALSE,
      [](int, const EmscriptenKeyboardEvent* event, void* state) { return key(event, false, state); });
  const auto focus = [](int type, const EmscriptenFocusEvent*, void* state) {
    static_cast<State*>(state)->input();
    ImGui::GetIO().AddFocusEvent(type == EMSCRIPTEN_EVENT_FOCUS);
    return EM_FALSE;
  };
  emscripten_set_focus_callback(EMSCRIPTEN_EVENT_TARGET_WINDOW, this, EM_FALSE, focus);
  emscripten_set_blur_callback(EMSCRIPTEN_EVENT_TARGET_WINDOW, this, EM_FALSE, focus);
  emscripten_set_resize_callback(EMSCRIPTEN_EVENT_TARGET_WINDOW, this, EM_FALSE,
                                 [](int, const EmscriptenUiEvent*, void* state) {
                                   static_cast<State*>(state)->input();
                                   return EM_FALSE;
                                 });
}

Window::Window() : state_(std::make_unique<State>()) {
  EmscriptenWebGLContextAttributes attributes;
  emscripten_webgl_init_context_attributes(&attributes);
  attributes.majorVersion = 2;
  attributes.alpha = attributes.depth = attributes.antialias = EM_FALSE;
  state_->context = emscripten_webgl_create_context(kCanvas, &attributes);
  if (state_->context <= 0) throw NoDisplay("This browser has no WebGL 2, or it is switched off.");
  emscripten_webgl_make_context_current(state_->context);
  page_draw_alone();
  ImGui::CreateContext();
  ImPlot::CreateContext();
  ImGuiIO& io = ImGui::GetIO();
  io.BackendPlatformName = "a page of a browser";
  io.BackendFlags |= ImGuiBackendFlags_HasMouseCursors;
  ImGuiPlatformIO& platform = ImGui::GetPlatformIO();
  platform.Platform_SetClipboardTextFn = [](ImGuiContext*, const char* text) {
    clipboard = text;
    page_copy(text);
  };
  platform.Platform_GetClipboardTextFn = [](ImGuiContext*) { return clipboard.c_str(); };
  ImGui_ImplOpenGL3_Init("#version 300 es");
  page_fit_canvas(&state_->width, &state_->height, &state_->scale);
  state_->listen();
}

Window::~Window() {
  ImGui_ImplOpenGL3_Shutdown();
  ImPlot::DestroyContext();
  ImGui::DestroyContext();
}

std::vector<std::filesystem::path> Window::take_dropped() {
  return std::exchange(given_files, {});
}

void Window::wake() {
  news = true;
}

void Window::draw_again_in(double later) {
  state_->policy.draw_at(seconds() + later);
}

float Window::display_scale() const {
  return static_cast<float>(state_->scale);
}

void Window::show_in_address(const std::string& scenario) {
  page_show_in_address(scenario.c_str());
}

void Window::files_were_written() {
  page_keep_files();
}

// False: the window is closed.
bool Window::State::draw() {
  if (call_next()) news = true;
  if (std::exchange(news, false)) policy.on_news();
  if (ImGui::IsAnyMouseDown() || GImGui->InputEventsQueue.Size > 0) input();
  const double now = seconds();
  if (!policy.should_draw(now)) return true;
  page_fit_canvas(&width, &height, &scale);
  ImGuiIO& io = ImGui::GetIO();
  io.DisplaySize = {static_cast<float>(width), static_cast<float>(height)};
  io.DeltaTime = static_cast<float>(std::max(1e-4, now - std::exchange(drawn_at, now)));
  prepare();
  ImGui_ImplOpenGL3_NewFrame();
  ImGui::NewFrame();
  const bool open = frame();
  ImGui::Render();
  const double built = seconds();
  ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
  if (const ImGuiMouseCursor wanted = ImGui::GetMouseCursor(); wanted != std::exchange(cursor, wanted))
    page_set_cursor(css_cursor(wanted));
  policy.drawn(seconds());
  page_drawn((built - now) * 1000, (seconds() - built) * 1000);
  return open;
}

void Window::run(std::function<void()> prepare, std::function<bool()> frame) {
  state_->prepare = std::move(prepare);
  state_->frame = std::move(frame);
  emscripten_request_animation_frame_loop(
      [](double, void* state) -> EM_BOOL { return static_cast<State*>(state)->draw() ? EM_TRUE : EM_FALSE; },
      state_.get());
}

}  // namespace app::gui

// Called by page.js.
extern "C" {

[[gnu::used]] void page_give_file(const char* path) {
  app::gui::given_files.emplace_back(path);
  app::gui::news = true;
}

[[gnu::used]] void page_pasted(const char* text) {
  app::gui::clipboard = text;
  app::gui::news = true;
  ImGuiIO& io = ImGui::GetIO();
  for (const bool down : {true, false}) {
    io.AddKeyEvent(ImGuiMod_Ctrl, true);
    io.AddKeyEvent(ImGuiKey_V, down);
  }
  io.AddKeyEvent(ImGuiMod_Ctrl, false);
}
}
