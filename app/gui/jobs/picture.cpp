#include "app/gui/jobs/picture.h"

#include <cmath>
#include <optional>

#include "app/gui/jobs/child_process.h"
#include "app/gui/jobs/passed_file.h"
#include "sim/scenario/preset.h"

namespace app::gui {

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
                                      std::string(name(question.theme)),
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
