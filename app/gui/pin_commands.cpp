// What is done with pins.
#include "app/gui/shell.h"

namespace app::gui {

void Shell::pin(std::shared_ptr<const sim::Report> report) {
  if (!report) return toast_.say("There is no prediction to pin.");
  if (pins().add(std::move(report)))
    toast_.say("Pinned. Compare and the other panels show it beside what is configured.");
  else
    toast_.say(pins().all().size() >= kPins ? "Five are pinned: unpin one in Compare."
                                            : "This is pinned already.");
}

void Shell::carry_out(const PinRequest& request) {
  switch (request.kind) {
    case PinRequest::Kind::add:
      return pin(request.report);
    case PinRequest::Kind::remove:
      return pins().remove(request.pin);
    case PinRequest::Kind::baseline:
      return pins().make_baseline(request.pin);
    case PinRequest::Kind::swap:
      return swap_with(request.pin);
  }
}

void Shell::swap_with(std::size_t pin) {
  if (pin >= pins().all().size() || !predicted()) return;
  const Pin& other = pins().all()[pin];
  sim::Scenario next = other.scenario();
  const std::string label = "Open " + other.name();
  pins().replace(pin, predicted());
  document().edit(label, std::move(next));
}

void Shell::add_pin_commands() {
  const auto add = [this](Command command) { commands_.add(std::move(command)); };
  const auto any = [this] { return !pins().all().empty(); };
  add({"pins.add",
       "Compare",
       "Pin this scenario",
       [this] { pin(predicted()); },
       ImGuiKey_P,
       {},
       [this] {
         return std::to_string(pins().all().size()) + " of " + std::to_string(kPins) + " are pinned";
       }});
  add({"pins.baseline", "Compare", "Next pin as the baseline",
       [this] { pins().make_baseline((pins().baseline_index() + 1) % pins().all().size()); }, ImGuiKey_B, any,
       [this] { return pins().baseline() ? "now " + pins().baseline()->name() : std::string(); }});
  add({"pins.swap", "Compare", "Swap with the baseline", [this] { swap_with(pins().baseline_index()); },
       ImGuiMod_Ctrl | ImGuiKey_B, any});
  add({"pins.clear", "Compare", "Unpin all", [this] { pins().clear(); }, ImGuiKey_None, any});
}

}  // namespace app::gui
