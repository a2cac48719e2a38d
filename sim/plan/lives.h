// The first and the last operation in the life of each instance of a buffer. Buffers that the same blocks use
// live alike but for the operation within a block, so they are followed as one. Included by .cpp files only.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sim/plan/memory.h"

namespace sim {

// A buffer's use in one block: its first and last operation there, inclusive.
struct BlockUse {
  BufferId buffer = kNoBuffer;
  std::int32_t layer_offset = 0;
  OpTime first = 0, last = 0;
};
using BlockUses = std::vector<std::vector<BlockUse>>;  // by block

// Uses of the buffers in the device's memory, or of those in the host's. A view counts as its whole buffer.
BlockUses uses_of_blocks(const Plan& plan, bool on_host = false);

inline bool is_scratch(const Buffer& b) {
  return b.buffer_class == BufferClass::scratch;
}

// Whether micro-batches that repeat each other use the same instance.
bool is_shared(const Buffer& b);

// What the programs of a plan have in common.
class LifeGroups {
 public:
  explicit LifeGroups(const Plan& plan, const BlockUses& uses);

 private:
  friend class Lives;

  // Buffers that the same blocks use at the same layers, and that live by the same rule.
  struct Group {
    std::vector<BufferId> buffers;
    Lifetime lifetime{};
    bool per_layer = false, per_micro_batch = false, folds = false;
  };
  struct Operations {
    OpTime first = 0, last = 0;
  };
  struct GroupUse {
    std::int32_t group = 0, layer_offset = 0;
    std::size_t operations = 0;  // index of those of the group's first buffer; the others' follow
  };
  struct Member {
    std::int32_t group = -1;
    std::size_t index = 0;
  };

  std::vector<Group> groups_;
  std::vector<Operations> operations_;
  std::vector<std::vector<GroupUse>> uses_;       // by block; not of scratch
  std::vector<std::vector<GroupUse>> recurring_;  // uses that a block's next action at a layer may change
  std::vector<Member> members_;                   // by buffer
  std::vector<std::vector<BlockUse>> scratch_;    // by block
};

// The lives of a program's instances. Where micro-batches repeat each other, the first alone has them.
// Refers to `groups`.
class Lives {
 public:
  // `times`: when the program's actions begin, and at the end its duration.
  Lives(const Plan& plan, const LifeGroups& groups, std::size_t program, const Repetition& micro_batches,
        std::span<const OpTime> times, Step step);

  // Runs visit(layer, micro-batch, first operation, last operation) for each instance of a buffer, by layer,
  // then micro-batch. Not of scratch.
  template <class Visit>
  void instances_of(BufferId buffer, Visit visit) const {
    const LifeGroups::Member& member = groups_.members_[static_cast<std::size_t>(buffer)];
    if (member.group < 0) return;
    const Place& place = places_[static_cast<std::size_t>(member.group)];
    const bool folds = groups_.groups_[static_cast<std::size_t>(member.group)].folds;
    const Life* life = lives_.data() + place.base;
    for (std::int32_t row = 0; row < place.layers; ++row)
      for (std::int32_t column = 0; column < place.micro_batches; ++column, ++life) {
        if (life->first_use == kNone) continue;
        visit(place.first_layer + row, folds && column > 0 ? column + rounds_ - 1 : column,
              place.from_the_beginning ? 0 : life->begin + operations(life->first_use, member.index).first,
              place.to_the_end
                  ? duration_ - 1
                  : std::max(life->pass_end, life->end + operations(life->last_use, member.index).last));
      }
  }
  // For scratch: within each action of a block that the program runs.
  std::span<const BlockUse> scratch_of(std::size_t block) const { return groups_.scratch_[block]; }
  std::size_t most_instances() const { return lives_.size(); }
  bool runs(std::size_t block) const { return runs_[block]; }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Life {
    OpTime begin = 0, end = 0;                        // of the first and the last action that uses it
    std::size_t first_use = kNone, last_use = kNone;  // their GroupUse::operations
    OpTime pass_end = 0;                              // Lifetime::pass
  };
  struct Place {
    std::size_t base = 0;
    std::int32_t first_layer = 0, layers = 0, micro_batches = 1;
    bool from_the_beginning = false, to_the_end = false;
  };

  const LifeGroups::Operations& operations(std::size_t of_group, std::size_t member) const {
    return groups_.operations_[of_group + member];
  }
  std::int32_t round(std::int32_t micro_batch) const {
    return micro_batch < rounds_ ? 0 : micro_batch - rounds_ + 1;
  }
  void place_groups(const Plan& plan, const std::vector<Action>& actions, Step step);

  const LifeGroups& groups_;
  OpTime duration_ = 0;
  std::int32_t rounds_ = 1;
  std::vector<bool> runs_;  // by block
  std::vector<Place> places_;
  std::vector<Life> lives_;
};

}  // namespace sim
