// What is done with pins.
#include "app/gui/shell.h"

namespace app::gui {

void Shell::pin(std::shared_ptr<const sim::Report> report) {
  if (!report) return toast_.say("There is no prediction to pin.");
  if (pins_.add(std::move(report)))
    toast_.say("Pinned. Compare and the other panels show it beside what is configured.");
  else
    toast_.say(pins_.all().size() >= kPins ? "Five are pinned: unpin one in Compare."
                                           : "This is pinned already.");
}

void Shell::carry_out(const PinRequest& request) {
  switch (request.kind) {
    case PinRequest::Kind::add:
      return pin(request.report);
    case PinRequest::Kind::remove:
      return pins_.remove(request.pin);
    case PinRequest::Kind::baseline:
      return pins_.make_baseline(request.pin);
    case PinRequest::Kind::swap:
      return swap_with(request.pin);
  }
}

void Shell::swap_with(std::size_t pin) {
  if (pin >= pins_.all().size() || !prediction_.result() || !prediction_.result()->report) return;
  const Pin& other = pins_.all()[pin];
  sim::Scenario next = other.scenario();
  const std::string label = "Open " + other.name();
  pins_.replace(pin, prediction_.result()->report);
  document_.edit(label, std::move(next));
}

void Shell::add_pin_commands() {
  const auto add = [this](Command command) { commands_.add(std::move(command)); };
  const auto any = [this] { return !pins_.all().empty(); };
  const auto baseline = [this] { return static_cast<std::size_t>(pins_.baseline() - pins_.all().data()); };
  add({"pins.add",
       "Compare",
       "Pin this scenario",
       [this] { pin(prediction_.result() ? prediction_.result()->report : nullptr); },
       ImGuiKey_P,
       {},
       [this] {
         return std::to_string(pins_.all().size()) + " of " + std::to_string(kPins) + " are pinned";
       }});
  add({"pins.baseline", "Compare", "Next pin as the baseline",
       [this, baseline] { pins_.make_baseline((baseline() + 1) % pins_.all().size()); }, ImGuiKey_B, any,
       [this] { return pins_.baseline() ? "now " + pins_.baseline()->name() : std::string(); }});
  add({"pins.swap", "Compare", "Swap with the baseline", [this, baseline] { swap_with(baseline()); },
       ImGuiMod_Ctrl | ImGuiKey_B, any});
  add({"pins.clear", "Compare", "Unpin all", [this] { pins_.clear(); }, ImGuiKey_None, any});
}

}  // namespace app::gui
