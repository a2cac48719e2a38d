// A schedule as a list of what happens, in an order in which nothing waits for what comes later. Where groups
// of micro-batches do the same one after the other, the list has such a group once.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sim/plan/schedule.h"

namespace sim {

struct SlotEvent {
  std::uint8_t kind = 0;  // of its pass, among SlotEvents::kinds
  bool forward = false;
  bool reads_ahead = false;               // PassKind's
  bool with_next = false;                 // sends only when the next one has also ended
  std::int32_t stage = 0, at = 0;         // `at`: stage and chunk
  std::int32_t received = -1, sent = -1;  // places of messages
  bool operator==(const SlotEvent&) const = default;
};

// Messages on their way when the segment begins are in places 0, 1, ... `carried` has the places of messages
// on their way when it ends, in the order of the places where the next segment finds them.
struct SlotSegment {
  std::vector<SlotEvent> events;
  std::vector<std::int32_t> carried;
};

struct SlotEvents {
  std::int32_t stages = 1, chunks = 1;
  std::size_t places = 0;           // for messages
  std::vector<std::uint8_t> kinds = {};  // that there are, of kPassKinds
  // The head, the group so many times, and the tail; all is in the head where no group is repeated.
  SlotSegment head = {}, group = {}, tail = {};
  std::int32_t repeats = 0;
};

// Slot by slot.
SlotEvents every_slot(const Schedule& schedule);
// The same with groups. Arguments as make_schedule has them.
SlotEvents slots_in_groups(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                           std::int32_t micro_batches);

// The number of micro-batches after which a schedule's pattern repeats.
std::int32_t group_of(const std::string& schedule, std::int32_t stages);

}  // namespace sim
