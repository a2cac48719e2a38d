#include "sim/planner/slot_events.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "sim/planner/pass_timer.h"

namespace sim {
namespace {

// Slots of each chunk of a stage: the first in either direction, and the last that give gradients, of inputs
// (embedding, head) and of weights.
struct ChunkSlots {
  explicit ChunkSlots(const std::vector<Slot>& slots, std::int32_t chunks)
      : first_forward(static_cast<std::size_t>(chunks), slots.size()),
        first_backward(first_forward),
        first_weight(first_forward),
        last_input(first_forward),
        last_weight(first_forward) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const auto chunk = static_cast<std::size_t>(slots[i].chunk);
      const Pass pass = slots[i].pass;
      std::size_t& first = (pass == Pass::forward ? first_forward : first_backward)[chunk];
      first = std::min(first, i);
      if (pass == Pass::backward || pass == Pass::backward_input) last_input[chunk] = i;
      if (pass == Pass::backward || pass == Pass::backward_weight) {
        first_weight[chunk] = std::min(first_weight[chunk], i);
        last_weight[chunk] = i;
      }
    }
  }
  bool is_first(std::size_t i, const Slot& slot) const {
    return i == (slot.pass == Pass::forward ? first_forward
                                            : first_backward)[static_cast<std::size_t>(slot.chunk)];
  }
  bool is_last(std::size_t i, const Slot& slot) const {
    return i == (slot.pass == Pass::backward_input ? last_input
                                                   : last_weight)[static_cast<std::size_t>(slot.chunk)];
  }
  bool is_first_of_weights(std::size_t i, const Slot& slot) const {
    return i == first_weight[static_cast<std::size_t>(slot.chunk)];
  }
  std::vector<std::size_t> first_forward, first_backward, first_weight, last_input, last_weight;
};

PassKind kind_of(const std::vector<Slot>& slots, std::size_t i, const ChunkSlots& ends) {
  const Slot& slot = slots[i];
  const bool forward = slot.pass == Pass::forward;
  const bool begins = i == 0 || slots[i - 1].chunk != slot.chunk ||
                      slots[i - 1].micro_batch != slot.micro_batch ||
                      (slots[i - 1].pass == Pass::forward) != forward;
  const bool of_weight = slot.pass == Pass::backward_weight, first = ends.is_first(i, slot) && !of_weight;
  const bool first_of_weights = ends.is_first_of_weights(i, slot);
  return {.pass = slot.pass,
          .begins_step = i == 0,
          .reads_ahead = forward && first,
          .begins_gradients = !forward && first,
          .begins_weights = first_of_weights,
          .ends_gradients = !forward && !first && !first_of_weights && ends.is_last(i, slot),
          .follows_input = of_weight && !begins};
}

// Collects kinds as they are met.
class Kinds {
 public:
  explicit Kinds(std::vector<std::uint8_t>& kinds) : kinds_(kinds) { places_.fill(kNone); }
  std::uint8_t place_of(const PassKind& kind) {
    std::uint8_t& place = places_[kind.code()];
    if (place != kNone) return place;
    place = static_cast<std::uint8_t>(kinds_.size());
    kinds_.push_back(static_cast<std::uint8_t>(std::ranges::find(kPassKinds, kind.code(), &PassKind::code) -
                                               kPassKinds.begin()));
    return place;
  }

 private:
  static constexpr std::uint8_t kNone = 0xff;
  std::vector<std::uint8_t>& kinds_;
  std::array<std::uint8_t, kPassCodes> places_;
};

// Events with numbers of messages, which are not yet places.
struct NumberedEvents {
  std::vector<SlotEvent> events = {};
  std::size_t numbers = 0;
};
NumberedEvents numbered_events(const Schedule& s, std::vector<std::uint8_t>& kinds) {
  std::vector<ChunkSlots> ends;
  for (const std::vector<Slot>& slots : s.slots) ends.emplace_back(slots, s.chunks);
  Kinds known(kinds);
  const ScheduleEvents all = events_of(s);
  NumberedEvents found{.numbers = all.messages};
  found.events.reserve(all.events.size());
  for (const ScheduleEvent& event : all.events) {
    const auto stage = static_cast<std::size_t>(event.stage);
    const Slot& slot = s.slots[stage][event.slot];
    const PassKind kind = kind_of(s.slots[stage], event.slot, ends[stage]);
    found.events.push_back({.kind = known.place_of(kind),
                            .forward = slot.pass == Pass::forward,
                            .reads_ahead = kind.reads_ahead,
                            .with_next = slot.with_next,
                            .stage = event.stage,
                            .at = event.stage * s.chunks + slot.chunk,
                            .received = event.received,
                            .sent = event.sent});
  }
  return found;
}

using Messages = std::vector<std::int32_t>;  // their numbers

// Gives the events places instead of numbers below `numbers`. A place is free for another message once its
// own has been received, because few are on their way at a time. `places`: as many as are needed.
SlotSegment in_places(std::vector<SlotEvent> events, const Messages& on_their_way, const Messages& afterwards,
                      std::size_t numbers, std::size_t& places) {
  std::vector<std::int32_t> place(numbers, -1), free;
  std::int32_t used = 0;
  for (const std::int32_t message : on_their_way) place[static_cast<std::size_t>(message)] = used++;
  for (std::size_t first = 0; first < events.size();) {
    std::size_t end = first + 1;
    while (events[end - 1].with_next) ++end;
    for (std::size_t i = first; i < end; ++i) {
      std::int32_t& received = events[i].received;
      if (received < 0) continue;
      received = place[static_cast<std::size_t>(received)];
      free.push_back(received);
    }
    for (std::size_t i = first; i < end; ++i) {
      std::int32_t& sent = events[i].sent;
      if (sent < 0) continue;
      std::int32_t own = used;
      if (free.empty()) {
        ++used;
      } else {
        own = free.back();
        free.pop_back();
      }
      place[static_cast<std::size_t>(sent)] = own;
      sent = own;
    }
    first = end;
  }
  SlotSegment segment{std::move(events), {}};
  for (const std::int32_t message : afterwards)
    segment.carried.push_back(place[static_cast<std::size_t>(message)]);
  places = std::max(places, static_cast<std::size_t>(used));
  return segment;
}

// How many slots each stage has had.
using Cut = std::vector<std::size_t>;

// Two cuts with a group of micro-batches between them, and what is on its way at either: the same messages of
// one group and of the next.
struct GroupCuts {
  Cut begin, end;
  Messages before, after;
};

// Where a schedule's slots are those of a group of micro-batches before.
class Groups {
 public:
  // `shift`: by how much the numbers of a group's micro-batches are larger than those of the group before.
  Groups(const NumberedEvents& all, std::size_t stages, std::int32_t shift)
      : events_(all.events), of_stage_(stages), sender_(all.numbers), shift_(shift) {
    for (const SlotEvent& e : events_) {
      std::vector<const SlotEvent*>& own = of_stage_[static_cast<std::size_t>(e.stage)];
      if (e.sent >= 0)
        sender_[static_cast<std::size_t>(e.sent)] = {static_cast<std::size_t>(e.stage), own.size()};
      own.push_back(&e);
    }
  }

  // The cuts around a group that the next one repeats, if there is one. What is before a cut needs nothing
  // that is behind it. `slots`: how many slots of each stage a group has.
  std::optional<GroupCuts> around_one(const std::vector<std::size_t>& slots) const {
    GroupCuts cuts;
    Cut last;  // slots that are repeated
    for (std::size_t stage = 0; stage < slots.size(); ++stage) {
      const auto [begin, end] = repeated(stage, slots[stage]);
      cuts.begin.push_back(begin);
      last.push_back(end);
    }
    cuts.begin = with_all_needed(std::move(cuts.begin));
    cuts.end = cuts.begin;
    for (std::size_t stage = 0; stage < slots.size(); ++stage) {
      cuts.end[stage] += slots[stage];
      if (cuts.end[stage] > last[stage]) return std::nullopt;
    }
    if (with_all_needed(cuts.end) != cuts.end) return std::nullopt;
    cuts.before = on_their_way(cuts.begin);
    cuts.after = on_their_way(cuts.end);
    Messages moved = cuts.before;
    for (std::int32_t& message : moved) message += shift_;
    if (moved != cuts.after) return std::nullopt;
    return cuts;
  }

  // Events behind one cut and before the other, in their order.
  std::vector<SlotEvent> between(const Cut& from, const Cut& to) const {
    std::vector<SlotEvent> some;
    Cut at(from.size());
    for (const SlotEvent& e : events_) {
      const auto stage = static_cast<std::size_t>(e.stage);
      const std::size_t i = at[stage]++;
      if (i >= from[stage] && i < to[stage]) some.push_back(e);
    }
    return some;
  }
  Cut everything() const {
    Cut all;
    for (const auto& slots : of_stage_) all.push_back(slots.size());
    return all;
  }

 private:
  struct Place {
    std::size_t stage = 0, slot = 0;
    bool is_before(const Cut& cut) const { return slot < cut[stage]; }
  };
  const Place& sender_of(const SlotEvent& e) const { return sender_[static_cast<std::size_t>(e.received)]; }

  bool is_repeated(const SlotEvent& e, const SlotEvent& later) const {
    SlotEvent moved = e;
    for (std::int32_t SlotEvent::*message : {&SlotEvent::received, &SlotEvent::sent})
      if (moved.*message >= 0) moved.*message += shift_;
    return moved == later;
  }
  // The longest row of slots that are the same `later` slots later.
  std::pair<std::size_t, std::size_t> repeated(std::size_t stage, std::size_t later) const {
    const std::vector<const SlotEvent*>& slots = of_stage_[stage];
    std::pair<std::size_t, std::size_t> longest{0, 0};
    for (std::size_t i = 0, begin = 0; i + later < slots.size(); ++i) {
      if (!is_repeated(*slots[i], *slots[i + later])) begin = i + 1;
      if (i + 1 - begin > longest.second - longest.first) longest = {begin, i + 1};
    }
    return longest;
  }
  // Messages that are sent before the cut and received behind it.
  Messages on_their_way(const Cut& cut) const {
    Messages messages;
    for (std::size_t stage = 0; stage < cut.size(); ++stage)
      for (std::size_t i = cut[stage]; i < of_stage_[stage].size(); ++i) {
        const SlotEvent& e = *of_stage_[stage][i];
        if (e.received >= 0 && sender_of(e).is_before(cut)) messages.push_back(e.received);
      }
    std::ranges::sort(messages);
    return messages;
  }
  Cut with_all_needed(Cut cut) const {
    Cut looked_at(cut.size());
    for (bool grew = true; std::exchange(grew, false);)
      for (std::size_t stage = 0; stage < cut.size(); ++stage) {
        const auto& slots = of_stage_[stage];
        while (cut[stage] > 0 && cut[stage] < slots.size() && slots[cut[stage] - 1]->with_next) ++cut[stage];
        for (std::size_t& i = looked_at[stage]; i < cut[stage]; ++i) {
          if (slots[i]->received < 0) continue;
          const Place& sender = sender_of(*slots[i]);
          if (sender.is_before(cut)) continue;
          cut[sender.stage] = sender.slot + 1;
          grew = true;
        }
      }
    return cut;
  }

  const std::vector<SlotEvent>& events_;
  std::vector<std::vector<const SlotEvent*>> of_stage_;
  std::vector<Place> sender_;  // by message
  std::int32_t shift_;
};

// Finds in a schedule of few groups what repeats when there are more; false where nothing does.
bool set_groups(const Schedule& few, const Schedule& with_another, std::int32_t shift, SlotEvents& set) {
  set.kinds.clear();
  const NumberedEvents all = numbered_events(few, set.kinds);
  const Groups groups(all, few.slots.size(), shift);
  std::vector<std::size_t> slots;
  for (std::size_t stage = 0; stage < few.slots.size(); ++stage)
    slots.push_back(with_another.slots[stage].size() - few.slots[stage].size());
  const std::optional<GroupCuts> cuts = groups.around_one(slots);
  if (!cuts) return false;
  const auto segment = [&](const Cut& from, const Cut& to, const Messages& before, const Messages& after) {
    return in_places(groups.between(from, to), before, after, all.numbers, set.places);
  };
  set.head = segment(Cut(slots.size()), cuts->begin, {}, cuts->before);
  set.group = segment(cuts->begin, cuts->end, cuts->before, cuts->after);
  set.tail = segment(cuts->end, groups.everything(), cuts->after, {});
  return true;
}

}  // namespace

std::int32_t group_of(const std::string& schedule, std::int32_t stages) {
  return placement_of(schedule) == Placement::two_directions ? 2 * stages : stages;
}

SlotEvents every_slot(const Schedule& schedule) {
  SlotEvents all{.stages = schedule.stages, .chunks = schedule.chunks};
  NumberedEvents every = numbered_events(schedule, all.kinds);
  all.head = in_places(std::move(every.events), {}, {}, every.numbers, all.places);
  return all;
}

SlotEvents slots_in_groups(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                           std::int32_t micro_batches) {
  const std::int32_t group = group_of(schedule, stages), filling = traits_of_schedule(schedule).filling;
  constexpr std::int32_t kTries = 3;
  for (std::int32_t groups = filling + 1; filling > 0 && groups <= filling + kTries; ++groups) {
    const std::int32_t few = groups * group + micro_batches % group;
    if (few + group > micro_batches) break;
    const Schedule s = make_schedule(schedule, stages, chunks, few);
    SlotEvents found{.stages = s.stages, .chunks = s.chunks};
    // In two directions, half of a group goes either way.
    if (!set_groups(s, make_schedule(schedule, stages, chunks, few + group), stages, found)) continue;
    found.repeats = 1 + (micro_batches - few) / group;
    return found;
  }
  return every_slot(make_schedule(schedule, stages, chunks, micro_batches));
}

}  // namespace sim
