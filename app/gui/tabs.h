// Scenarios beside each other, a tab each, with a history, pins and a file of its own.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/gui/document.h"
#include "app/gui/pins.h"
#include "app/gui/predictor.h"

namespace app::gui {

struct Tab {
  Document document;
  Pins pins = {};
  std::filesystem::path file = {};       // that it was saved to or opened from; empty: none
  std::optional<Prediction> legal = {};  // the last that has figures
  int id = 0;                            // of a tab that is open: its own

  // Whether the tab is as new: nothing is lost where another scenario takes its place.
  bool is_untouched() const;
};

class Tabs {
 public:
  static constexpr std::size_t kMost = 12;  // that a row of tabs has room for

  explicit Tabs(Tab first);

  std::size_t count() const { return all_.size(); }
  std::size_t index() const { return index_; }  // of the current one
  Tab& current() { return *all_[index_]; }
  const Tab& current() const { return *all_[index_]; }
  Tab& at(std::size_t i) { return *all_[i]; }
  const Tab& at(std::size_t i) const { return *all_[i]; }
  // The first that has this file.
  std::optional<std::size_t> with_file(const std::filesystem::path& file) const;

  // Adds a tab at the end, not yet the current one. False where there are kMost.
  bool add(Tab tab);
  void show(std::size_t i);
  // Moves a tab to another's place; the others make room. The shown tab stays shown.
  void move(std::size_t from, std::size_t to);
  // Closes a tab; its neighbour becomes the current one. False for the only tab, which stays.
  bool close(std::size_t i);
  // Reopens the tab closed last, in its place; false where there is none or no room.
  bool reopen();
  bool can_reopen() const { return !closed_.empty() && count() < kMost; }

  // What is read on a tab: its file's name, else its model and machine, and where an earlier tab says just
  // that, how it differs from it.
  std::string name(std::size_t i) const;
  // Grows with every change of what a session keeps.
  std::size_t revision() const;

 private:
  struct Closed {
    std::size_t index;
    std::unique_ptr<Tab> tab;
  };
  static constexpr std::size_t kMostClosed = 10;

  std::vector<std::unique_ptr<Tab>> all_;  // in place, since panels hold what they show for a frame
  std::vector<Closed> closed_;             // the latest last
  std::size_t index_ = 0;
  std::size_t changes_ = 0;
  int ids_ = 0;
};

}  // namespace app::gui
