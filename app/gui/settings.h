// What the desktop remembers between starts, one JSON file.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "app/gui/desktop.h"
#include "app/gui/lectures.h"
#include "app/gui/saved_tabs.h"
#include "sim/byte_units.h"

namespace app::gui {

inline constexpr float kLeastScale = 0.75f, kGreatestScale = 3.0f;

struct Settings {
  Theme theme = Theme::dark;
  float scale = 1;                                       // of the interface, times the display's own
  sim::ByteUnits bytes = sim::ByteUnits::binary;         // in which memory is shown
  bool still = false;                                    // reduced motion: nothing moves of itself
  std::string layout;                                    // Dear ImGui's ini text; empty: the shipped layout
  std::vector<std::string> closed_panels;                // ids
  std::vector<SavedTab> tabs;                            // of the last session
  std::size_t tab = 0;                                   // the one that was shown
  std::vector<std::filesystem::path> recent_files = {};  // opened or saved, the newest first
  // The user's own keys, by the command's id: "Ctrl+T", or "" for none.
  std::map<std::string, std::string> keys = {};
  Lectures lectures = {};
  bool operator==(const Settings&) const = default;
};

// Defaults where there is no file, or none that can be read: a lost layout must not keep the window from
// opening, nor must a scenario of another version cost the layout. What cannot be
// read is set aside (runtime/formats/set_aside.h).
bool has_settings(const std::filesystem::path& directory);  // false: this is the first start
Settings load_settings(const std::filesystem::path& directory);
// Written beside and renamed over, so that a crash leaves the old or the new one. Does nothing without a
// directory; throws std::runtime_error, one sentence, where it cannot be written.
void save_settings(const Settings& settings, const std::filesystem::path& directory);

}  // namespace app::gui
