#include "app/gui/offscreen.h"

#include <dlfcn.h>

#include <algorithm>
#include <string>

#include "app/gui/desktop.h"

namespace app::gui {
namespace {

// EGL's and OpenGL's C interfaces, as far as they are used here, by the Khronos registry: the program starts
// where neither library is installed.
using EglHandle = void*;
using EglInt = std::int32_t;
constexpr unsigned kPlatformSurfacelessMesa = 0x31DD;
constexpr unsigned kOpenGlApi = 0x30A2;
constexpr EglInt kNone = 0x3038, kSurfaceType = 0x3033, kRenderableType = 0x3040, kOpenGlBit = 0x0008,
                 kContextMajorVersion = 0x3098, kContextMinorVersion = 0x30FB, kContextProfileMask = 0x30FD,
                 kCoreProfileBit = 1;
constexpr unsigned kTexture2d = 0x0DE1, kFramebuffer = 0x8D40, kColorAttachment0 = 0x8CE0, kRgba8 = 0x8058,
                   kRgba = 0x1908, kUnsignedByte = 0x1401, kFramebufferComplete = 0x8CD5,
                   kTextureMinFilter = 0x2801, kNearest = 0x2600;

[[noreturn]] void fail(const std::string& why) {
  throw NoDisplay("No picture can be drawn without a display here: " + why +
                  " (Debian: libegl1 and libgl1-mesa-dri; Fedora: mesa-libEGL and mesa-dri-drivers).");
}

}  // namespace

struct Offscreen::Gl {
  void* library = nullptr;
  EglHandle display = nullptr, context = nullptr;
  unsigned texture = 0, framebuffer = 0;

  void* (*get_proc_address)(const char*) = nullptr;
  unsigned (*terminate)(EglHandle) = nullptr;
  unsigned (*destroy_context)(EglHandle, EglHandle) = nullptr;
  unsigned (*make_current)(EglHandle, EglHandle, EglHandle, EglHandle) = nullptr;
  void (*read_pixels)(int, int, int, int, unsigned, unsigned, void*) = nullptr;
  void (*finish)() = nullptr;

  template <class Function>
  void symbol(Function& function, const char* name) {
    void* address = dlsym(library, name);
    if (!address && get_proc_address) address = get_proc_address(name);
    if (!address) fail(std::string("libEGL has no ") + name);
    function = reinterpret_cast<Function>(address);
  }

  void open_context() {
    library = dlopen("libEGL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) fail("libEGL.so.1 is not installed");
    symbol(get_proc_address, "eglGetProcAddress");
    symbol(terminate, "eglTerminate");
    symbol(destroy_context, "eglDestroyContext");
    symbol(make_current, "eglMakeCurrent");
    EglHandle (*get_platform_display)(unsigned, void*, const EglInt*) = nullptr;
    unsigned (*initialize)(EglHandle, EglInt*, EglInt*) = nullptr;
    unsigned (*bind_api)(unsigned) = nullptr;
    unsigned (*choose_config)(EglHandle, const EglInt*, EglHandle*, EglInt, EglInt*) = nullptr;
    EglHandle (*create_context)(EglHandle, EglHandle, EglHandle, const EglInt*) = nullptr;
    symbol(get_platform_display, "eglGetPlatformDisplayEXT");
    symbol(initialize, "eglInitialize");
    symbol(bind_api, "eglBindAPI");
    symbol(choose_config, "eglChooseConfig");
    symbol(create_context, "eglCreateContext");
    display = get_platform_display(kPlatformSurfacelessMesa, nullptr, nullptr);
    if (!display || !initialize(display, nullptr, nullptr)) fail("EGL has no surfaceless platform");
    if (!bind_api(kOpenGlApi)) fail("EGL knows no desktop OpenGL");
    const EglInt wanted[] = {kSurfaceType, 0, kRenderableType, kOpenGlBit, kNone};
    EglHandle config = nullptr;
    EglInt found = 0;
    if (!choose_config(display, wanted, &config, 1, &found) || found < 1)
      fail("EGL has no OpenGL configuration");
    const EglInt version[] = {kContextMajorVersion, 3,    kContextMinorVersion, 3, kContextProfileMask,
                              kCoreProfileBit,      kNone};
    context = create_context(display, config, nullptr, version);
    if (!context || !make_current(display, nullptr, nullptr, context))
      fail("OpenGL 3.3 could not be started");
  }

  void open_framebuffer(int width, int height) {
    void (*gen_textures)(int, unsigned*) = nullptr;
    void (*bind_texture)(unsigned, unsigned) = nullptr;
    void (*tex_image)(unsigned, int, int, int, int, int, unsigned, unsigned, const void*) = nullptr;
    void (*tex_parameter)(unsigned, unsigned, int) = nullptr;
    void (*gen_framebuffers)(int, unsigned*) = nullptr;
    void (*bind_framebuffer)(unsigned, unsigned) = nullptr;
    void (*attach)(unsigned, unsigned, unsigned, unsigned, int) = nullptr;
    unsigned (*status)(unsigned) = nullptr;
    symbol(gen_textures, "glGenTextures");
    symbol(bind_texture, "glBindTexture");
    symbol(tex_image, "glTexImage2D");
    symbol(tex_parameter, "glTexParameteri");
    symbol(gen_framebuffers, "glGenFramebuffers");
    symbol(bind_framebuffer, "glBindFramebuffer");
    symbol(attach, "glFramebufferTexture2D");
    symbol(status, "glCheckFramebufferStatus");
    symbol(read_pixels, "glReadPixels");
    symbol(finish, "glFinish");
    gen_textures(1, &texture);
    bind_texture(kTexture2d, texture);
    tex_image(kTexture2d, 0, static_cast<int>(kRgba8), width, height, 0, kRgba, kUnsignedByte, nullptr);
    tex_parameter(kTexture2d, kTextureMinFilter, static_cast<int>(kNearest));
    bind_texture(kTexture2d, 0);
    gen_framebuffers(1, &framebuffer);
    bind_framebuffer(kFramebuffer, framebuffer);
    attach(kFramebuffer, kColorAttachment0, kTexture2d, texture, 0);
    if (status(kFramebuffer) != kFramebufferComplete)
      fail("OpenGL refuses a picture of " + std::to_string(width) + " x " + std::to_string(height) +
           " pixels");
  }

  ~Gl() {
    if (context) {
      make_current(display, nullptr, nullptr, nullptr);
      destroy_context(display, context);
    }
    if (display) terminate(display);
    // The library stays: drivers keep threads and exit handlers in it.
  }
};

Offscreen::Offscreen(int width, int height) : gl_(std::make_unique<Gl>()), width_(width), height_(height) {
  gl_->open_context();
  gl_->open_framebuffer(width, height);
}

Offscreen::~Offscreen() = default;

std::vector<std::uint8_t> Offscreen::read_pixels() const {
  const std::size_t row = static_cast<std::size_t>(width_) * 4;
  std::vector<std::uint8_t> pixels(row * static_cast<std::size_t>(height_));
  gl_->finish();
  gl_->read_pixels(0, 0, width_, height_, kRgba, kUnsignedByte, pixels.data());
  // OpenGL's first row is the lowest. Blending leaves alpha behind that a picture must not have.
  for (std::size_t top = 0, bottom = static_cast<std::size_t>(height_) - 1; top < bottom; ++top, --bottom)
    std::swap_ranges(pixels.begin() + static_cast<std::ptrdiff_t>(top * row),
                     pixels.begin() + static_cast<std::ptrdiff_t>((top + 1) * row),
                     pixels.begin() + static_cast<std::ptrdiff_t>(bottom * row));
  for (std::size_t i = 3; i < pixels.size(); i += 4) pixels[i] = 255;
  return pixels;
}

}  // namespace app::gui
