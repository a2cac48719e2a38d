#include "app/gui/tabs.h"

#include <algorithm>
#include <utility>

#include "app/gui/legal.h"
#include "sim/format.h"

namespace app::gui {
namespace {

std::string plain_name(const Tab& tab) {
  if (!tab.file.empty()) return tab.file.stem().string();
  const sim::Scenario& s = tab.document.scenario();
  const std::int64_t devices = s.strategy.devices();
  return s.model.name + ", " + (devices > 1 ? sim::format_count(devices) + " x " : "") + s.hardware.name;
}

std::size_t revision_of(const Tab& tab) {
  return tab.document.revision() + tab.pins.revision();
}

}  // namespace

bool Tab::is_untouched() const {
  return file.empty() && pins.all().empty() && !document.can_undo() && !document.can_redo();
}

Tabs::Tabs(Tab first) {
  add(std::move(first));
}

std::optional<std::size_t> Tabs::with_file(const std::filesystem::path& file) const {
  for (std::size_t i = 0; i < count(); ++i)
    if (!file.empty() && at(i).file == file) return i;
  return std::nullopt;
}

bool Tabs::add(Tab tab) {
  if (count() >= kMost) return false;
  tab.id = ++ids_;
  all_.push_back(std::make_unique<Tab>(std::move(tab)));
  ++changes_;
  return true;
}

void Tabs::show(std::size_t i) {
  if (i >= count() || i == index_) return;
  current().document.end_gesture();
  index_ = i;
  ++changes_;
}

void Tabs::move(std::size_t from, std::size_t to) {
  if (from >= count() || to >= count() || from == to) return;
  const Tab* const shown = &current();
  const auto at = [&](std::size_t i) { return all_.begin() + static_cast<std::ptrdiff_t>(i); };
  if (from < to)
    std::rotate(at(from), at(from + 1), at(to + 1));
  else
    std::rotate(at(to), at(from), at(from + 1));
  for (std::size_t i = 0; i < count(); ++i)
    if (all_[i].get() == shown) index_ = i;
  ++changes_;
}

bool Tabs::close(std::size_t i) {
  if (count() < 2 || i >= count()) return false;
  // Revisions go on where this one's are no longer counted.
  changes_ += revision_of(at(i)) + 1;
  closed_.push_back({i, std::move(all_[i])});
  if (closed_.size() > kMostClosed) closed_.erase(closed_.begin());
  all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(i));
  if (index_ > i || index_ == count()) --index_;
  return true;
}

bool Tabs::reopen() {
  if (!can_reopen()) return false;
  Closed last = std::move(closed_.back());
  closed_.pop_back();
  index_ = std::min(last.index, count());
  all_.insert(all_.begin() + static_cast<std::ptrdiff_t>(index_), std::move(last.tab));
  ++changes_;
  return true;
}

std::string Tabs::name(std::size_t i) const {
  const std::string plain = plain_name(at(i));
  int alike = 1;
  for (std::size_t before = 0; before < i; ++before) {
    if (plain_name(at(before)) != plain) continue;
    const std::string differs = differences(at(before).document.scenario(), at(i).document.scenario());
    if (alike == 1 && !differs.empty()) return at(i).document.scenario().model.name + ": " + differs;
    ++alike;
  }
  return alike == 1 ? plain : plain + " (" + std::to_string(alike) + ")";
}

std::size_t Tabs::revision() const {
  std::size_t sum = changes_;
  for (const auto& tab : all_) sum += revision_of(*tab);
  return sum;
}

}  // namespace app::gui
