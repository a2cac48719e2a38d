#include "app/gui/step_view.h"

#include <algorithm>
#include <cmath>

#include "sim/cost/price.h"

namespace app::gui {
namespace {

constexpr double kLeastMessage = 1024, kLargestMessage = 8.0 * 1024 * 1024 * 1024;  // bytes
constexpr int kCurvePoints = 60;

MessageCurve curve_of(const sim::MessageTraffic& traffic, const sim::Plan& plan,
                      const sim::Hardware& hardware, const sim::Calibration* calibration) {
  MessageCurve curve{traffic.group, traffic.kind, {}};
  sim::Group group = plan.groups[static_cast<std::size_t>(traffic.group)];
  if (traffic.kind == sim::OpKind::send) group.size = 2;  // a transfer is between neighbours
  sim::Operation op;
  op.kind = traffic.kind;
  op.group = traffic.group;
  for (int i = 0; i < kCurvePoints; ++i) {
    sim::Work work;
    work.network = {std::llround(kLeastMessage * std::pow(kLargestMessage / kLeastMessage,
                                                          static_cast<double>(i) / (kCurvePoints - 1)))};
    const sim::Price price = sim::price(work, op, {}, hardware, calibration, &group);
    curve.points.push_back({work.network, price.seconds, price.low, price.high});
  }
  return curve;
}

}  // namespace

GroupPlace place_of(const sim::Group& group, const sim::Hardware& hardware) {
  GroupPlace place;
  const int node = std::max(1, hardware.devices_per_node);
  place.ranks_per_node = std::clamp(node / std::max(1, group.stride), 1, group.size);
  place.nodes = (group.size + place.ranks_per_node - 1) / place.ranks_per_node;
  place.link = hardware.node_link;
  if (place.nodes > 1) {
    place.link = hardware.network_link * place.ranks_per_node;
    if (place.ranks_per_node > 1) place.link = std::min(place.link, hardware.node_link);
  }
  return place;
}

int first_of_group(const sim::Group& group, int rank) {
  return rank - rank / group.stride % group.size * group.stride;
}

std::span<const sim::TimelineSlot> StepView::slots_of(int stage) const {
  const auto s = static_cast<std::size_t>(stage);
  return std::span(slots).subspan(first_slot[s], first_slot[s + 1] - first_slot[s]);
}

const sim::TimelineSlot* StepView::slot_at(int stage, sim::Seconds time) const {
  const auto of_stage = slots_of(stage);
  const auto after =
      std::upper_bound(of_stage.begin(), of_stage.end(), time,
                       [](sim::Seconds t, const sim::TimelineSlot& slot) { return t < slot.start; });
  if (after == of_stage.begin() || !(time < (after - 1)->end)) return nullptr;
  return &*(after - 1);
}

sim::MemoryByClass StepView::memory_at(int stage, sim::Seconds time) const {
  const auto& points = memory[static_cast<std::size_t>(stage)];
  const auto after = std::upper_bound(points.begin(), points.end(), time,
                                      [](sim::Seconds t, const auto& point) { return t < point.time; });
  if (points.empty()) return {};
  return after == points.begin() ? after->bytes : (after - 1)->bytes;
}

StepView make_step_view(const sim::Plan& plan, const sim::Hardware& hardware,
                        const sim::Calibration* calibration) {
  StepView view;
  sim::StepDetail detail = sim::step_detail(plan, hardware, calibration);
  view.stages = static_cast<int>(plan.programs.size());
  view.ranks = plan.ranks;
  view.groups = plan.groups;
  view.slots = std::move(detail.slots);
  view.memory = std::move(detail.memory);
  view.first_step = std::move(detail.first_step);
  view.traffic = std::move(detail.traffic);
  for (const sim::MessageTraffic& traffic : view.traffic) {
    const bool known = std::any_of(view.curves.begin(), view.curves.end(), [&](const MessageCurve& curve) {
      return curve.group == traffic.group && curve.kind == traffic.kind;
    });
    if (!known) view.curves.push_back(curve_of(traffic, plan, hardware, calibration));
  }
  for (int stage = 0; stage <= view.stages; ++stage)
    view.first_slot.push_back(static_cast<std::size_t>(
        std::lower_bound(view.slots.begin(), view.slots.end(), stage,
                         [](const sim::TimelineSlot& slot, int s) { return slot.stage < s; }) -
        view.slots.begin()));
  for (const sim::TimelineSlot& slot : view.slots) view.duration = std::max(view.duration, slot.end);
  if (!detail.operations.empty())
    view.operations = std::make_shared<const RankOperations>(
        RankOperations{0, std::move(detail.operations), view.duration});
  view.closed_form_bubble = sim::closed_form_bubble(view.slots, plan.scenario.strategy.schedule);
  for (int stage = 0; stage < view.stages; ++stage) {
    std::vector<sim::Bytes>& live = view.live.emplace_back();
    for (const sim::MemoryTimePoint& point : view.memory[static_cast<std::size_t>(stage)]) {
      live.push_back(sim::total(point.bytes));
      if (live.back() <= view.peak) continue;
      view.peak = live.back();
      view.peak_time = point.time;
      view.fullest_stage = stage;
    }
  }
  return view;
}

}  // namespace app::gui
