#include "app/gui/print_page.h"

#include "app/gui/desktop.h"

namespace app {

void print_page(const std::string&, const std::filesystem::path&) {
  throw NoDisplay("The page prints itself: write the handout as .html, open it, and print that.");
}

}  // namespace app
