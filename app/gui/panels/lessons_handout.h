// A lesson on paper: one HTML page that needs no other file and no network, with its formulas, numbers and
// pictures, and room for answers. Browsers print it, also as PDF.
#pragma once
#include <string>

#include "app/lesson/play.h"

namespace app {

struct HandoutOptions {
  bool answers = false;  // else room for them
  bool notes = false;    // the lecturer's
};

// Throws what a step's scenario throws, and NoDisplay in a build without the libraries that draw.
std::string handout(const lesson::Lesson& lesson, lesson::Predictions& predictions,
                    const HandoutOptions& options);

}  // namespace app
