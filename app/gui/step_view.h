// A predicted training step as the pipeline and communication panels draw it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "app/gui/jobs/run_state.h"
#include "sim/cost/step_detail.h"

namespace app::gui {

// What a message of any size takes, of a kind and group that the step has.
struct MessageCurve {
  struct Point {
    sim::Bytes sent;  // by one rank
    sim::Seconds seconds, low, high;
  };
  std::int32_t group = 0;
  sim::OpKind kind{};
  std::vector<Point> points;
};

// Where the ranks of a group are.
struct GroupPlace {
  int ranks_per_node = 1, nodes = 1;  // of one group
  // The link of a rank in a ring through all of them: between nodes the adapters of those side by side work
  // together. 0: the hardware names none.
  sim::BytesPerSecond link;
};
GroupPlace place_of(const sim::Group& group, const sim::Hardware& hardware);
// The first rank of the group that a rank is in.
int first_of_group(const sim::Group& group, int rank);

struct StepView {
  int stages = 1, ranks = 1;
  sim::Seconds duration;
  std::vector<sim::Group> groups;
  std::vector<sim::TimelineSlot> slots;                   // by stage, then time
  std::vector<std::size_t> first_slot;                    // of each stage, and past the last
  std::vector<std::vector<sim::MemoryTimePoint>> memory;  // of each stage
  std::vector<sim::MemoryTimePoint> first_step;           // of the fullest stage
  std::vector<std::vector<sim::Bytes>> live;              // all classes of `memory`
  std::vector<sim::MessageTraffic> traffic;
  std::vector<MessageCurve> curves;                  // one for each kind and group in the traffic
  std::shared_ptr<const RankOperations> operations;  // of each stage; null: too many to look at
  std::optional<sim::Seconds> closed_form_bubble;
  int fullest_stage = 0;
  sim::Bytes peak;           // of the fullest stage
  sim::Seconds peak_time{};  // when it first holds that

  std::span<const sim::TimelineSlot> slots_of(int stage) const;
  // The slot that a stage runs at a time; null while it waits.
  const sim::TimelineSlot* slot_at(int stage, sim::Seconds time) const;
  sim::MemoryByClass memory_at(int stage, sim::Seconds time) const;
};

StepView make_step_view(const sim::Plan& plan, const sim::Hardware& hardware,
                        const sim::Calibration* calibration);

}  // namespace app::gui
