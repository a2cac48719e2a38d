#include "app/gui/pins.h"

#include <algorithm>
#include <cmath>

#include "app/gui/legal.h"
#include "sim/format.h"
#include "sim/report/metrics.h"
#include "sim/report/step_parts.h"

namespace app::gui {

bool Pins::add(std::shared_ptr<const sim::Report> report) {
  if (all_.size() >= kPins) return false;
  if (std::any_of(all_.begin(), all_.end(), [&](const Pin& pin) { return pin.report == report; }))
    return false;
  char letter = 'A';
  auto place = all_.begin();
  for (; place != all_.end() && place->letter == letter; ++place) ++letter;
  const auto at = static_cast<std::size_t>(place - all_.begin());
  if (!all_.empty() && at <= baseline_) ++baseline_;
  all_.insert(place, {letter, std::move(report)});
  ++revision_;
  return true;
}

void Pins::remove(std::size_t pin) {
  if (pin >= all_.size()) return;
  all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(pin));
  if (baseline_ > pin)
    --baseline_;
  else if (baseline_ == pin)
    baseline_ = 0;
  ++revision_;
}

void Pins::make_baseline(std::size_t pin) {
  if (pin >= all_.size()) return;
  baseline_ = pin;
  ++revision_;
}

ImU32 pin_color(const Look& look, const Pin& pin) {
  return look.color().pins[static_cast<std::size_t>(pin.letter - 'A') % kPins];
}

std::string what_made_the_difference(const sim::Report& report, const Pin& baseline) {
  const sim::StepParts now = sim::step_parts(report), then = sim::step_parts(*baseline.report);
  if (!(now.whole.value > 0) || !(then.whole.value > 0)) return "";
  std::string words;
  // What work a second does: steps of different batches are not one another's equals.
  const double rate = sim::tokens_per_second(report), was = sim::tokens_per_second(*baseline.report);
  const bool comparable = rate > 0 && was > 0;
  const double faster = comparable ? rate / was - 1 : then.whole / now.whole - 1;
  constexpr double kSame = 0.0005;
  if (std::abs(faster) < kSame)
    words = "As fast as " + baseline.name();
  else
    words = sim::format_percent(std::abs(faster)) + (faster > 0 ? " faster than " : " slower than ") +
            baseline.name();
  // Scales the parts to the baseline's work, so that they can be subtracted.
  const double scale = comparable ? was * then.whole.value / (rate * now.whole.value) : 1;
  std::vector<std::pair<double, sim::StepPart>> changes;
  for (const sim::StepPart part : sim::kAll<sim::StepPart>)
    changes.emplace_back(scale * now[part].value - then[part].value, part);
  std::sort(changes.begin(), changes.end(),
            [](const auto& a, const auto& b) { return std::abs(a.first) > std::abs(b.first); });
  constexpr std::size_t kMostParts = 3;
  std::string parts;
  for (std::size_t i = 0; i < kMostParts; ++i) {
    if (std::abs(changes[i].first) < 0.01 * std::abs(changes.front().first) || changes[i].first == 0) break;
    parts += (parts.empty() ? ": " : ", ") + sim::format(sim::Seconds{std::abs(changes[i].first)}) +
             (changes[i].first < 0 ? " less " : " more ") + std::string(sim::name(changes[i].second));
  }
  words += parts;
  if (scale < 0.999 || scale > 1.001) words += ", for the same tokens";
  const std::string changed = differences(baseline.scenario(), report.source.scenario);
  return words + (changed.empty() ? "." : ". Changed: " + changed + ".");
}

}  // namespace app::gui
