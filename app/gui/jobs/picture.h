// A panel drawn into a PNG at any scale, by this program in a process of its own: the window's frames are the
// display's size, and go on.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "app/gui/desktop.h"
#include "app/gui/jobs/study.h"

namespace app::gui {

struct PictureQuestion {
  std::string executable, panel;  // empty panel: the whole desktop
  sim::Scenario scenario;
  std::shared_ptr<const sim::Report> measured;  // of a run that is shown; may be null
  int width = 0, height = 0;                    // pixels at scale 1
  double scale = 1;
  Theme theme{};
  std::filesystem::path png;
};
using PictureStudy = Study<PictureQuestion, std::filesystem::path>;

// The file that was written. Throws std::runtime_error, a sentence.
std::filesystem::path draw_picture(const PictureQuestion& question, const PictureStudy::Course& course);

}  // namespace app::gui
