#include "app/gui/panels/last_change.h"

namespace app::gui {

void LastChange::follow(const std::shared_ptr<const sim::Report>& now, int tab, double time) {
  if (now == now_ && tab == tab_) return;
  const bool is_edit = now && now_ && tab == tab_ &&
                       now->source.scenario.workload.task == now_->source.scenario.workload.task &&
                       !(now->source.scenario == now_->source.scenario);
  // Edits of one gesture come one after another: each is compared with the one before.
  before_ = is_edit ? now_ : nullptr;
  at_ = time;
  now_ = now;
  tab_ = tab;
}

std::optional<double> LastChange::left(double time) const {
  const double left = at_ + kShown - time;
  return before_ && left > 0 ? std::optional(left) : std::nullopt;
}

}  // namespace app::gui
