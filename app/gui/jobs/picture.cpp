#include "app/gui/jobs/picture.h"

#include <unistd.h>

#include <cmath>
#include <fstream>
#include <stdexcept>

#include "app/gui/jobs/child_process.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

// A file for the other process, gone at the end of the scope.
class PassedFile {
 public:
  PassedFile(const char* name, const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("ridgepoint_" + std::to_string(::getpid()) + "_" + name)) {
    std::ofstream out(path_);
    out << text;
    out.close();
    if (!out) throw std::runtime_error("The scenario could not be written to " + path_.string() + ".");
  }
  ~PassedFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  PassedFile(const PassedFile&) = delete;
  PassedFile& operator=(const PassedFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace

std::filesystem::path draw_picture(const PictureQuestion& question, const PictureStudy::Course& course) {
  const PassedFile scenario("scenario.json", sim::to_json(question.scenario));
  std::optional<PassedFile> measured;
  const auto pixels = [&](int points) { return std::to_string(std::lround(points * question.scale)); };
  std::vector<std::string> command = {question.executable,
                                      "screenshot",
                                      "--scenario",
                                      scenario.path(),
                                      "--size",
                                      pixels(question.width) + "x" + pixels(question.height),
                                      "--scale",
                                      std::to_string(question.scale),
                                      "--theme",
                                      question.theme == Theme::dark ? "dark" : "light",
                                      "--out",
                                      question.png.string()};
  if (!question.panel.empty()) command.insert(command.end(), {"--panel", question.panel});
  if (question.measured) {
    measured.emplace("measured.json", sim::to_json(*question.measured));
    command.insert(command.end(), {"--measured", measured->path()});
  }
  run_to_end(
      std::move(command), [](std::string_view) {}, [&] { return course.stopped(); });
  return question.png;
}

}  // namespace app::gui
