// Runs a plan: binds buffers to addresses in one arena, walks a section's actions, hands every operation to
// the device by its kind and times it by its id. It knows kinds, not layers or models.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/arena.h"
#include "runtime/collectives.h"
#include "runtime/communicator.h"
#include "runtime/device.h"
#include "runtime/expert_rows.h"
#include "sim/plan/memory.h"
#include "sim/plan/plan.h"

namespace runtime {

// What a row of a report stands for: all executions of an operation in a phase.
struct RowKey {
  sim::Phase phase{};
  std::string id;
  sim::OpKind kind{};
};

// One run of a section. The vectors are indexed as Executor::rows(); a row that the section does not run has
// count 0.
struct SectionTiming {
  double seconds = 0;  // from the first operation's start to the last one's end
  std::vector<double> start, duration;
  std::vector<std::int64_t> count;
  // By row: kAlone, or the row whose kernel also ran this row's operations (Device::run_fused). That row then
  // has the time of all, and this row's duration is 0.
  static constexpr std::size_t kAlone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> fused_into;
};

// When an action of the section ran, in seconds since its first operation began.
struct ActionSpan {
  std::size_t action = 0;  // of the program
  double start = 0, end = 0;
};

class Executor {
 public:
  // The arguments must outlive the executor. Throws NoDevice where the device lacks an operation's kernel.
  Executor(const sim::Plan& plan, const sim::MemoryPlan& memory, Device& device, Communicator& communicator,
           std::size_t program = 0);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  const std::vector<RowKey>& rows() const { return rows_; }
  const Arena& arena() const { return arena_; }
  // What the plan keeps in the host's memory, and where that is; null where it keeps nothing there.
  const sim::MemoryPlan& host_memory() const { return host_memory_; }
  const Arena* host_arena() const { return host_arena_ ? &*host_arena_ : nullptr; }
  const sim::Program& program() const { return program_; }

  // All device memory of one instance. Throws std::out_of_range where the program does not use it.
  std::span<std::byte> instance(sim::BufferId buffer, std::int32_t layer = 0,
                                std::int32_t micro_batch = 0) const;

  SectionTiming run(std::size_t section, const RunSettings& settings);

  // The same work without stamps between operations; returns the section's seconds. The section is captured
  // the first time if the device replays work (can_replay) and ranks exchange nothing in it but sums and
  // parts. Sections that differ only in the length of the context, as those of decoding do, share a capture.
  // Call run() once for each shape before.
  double run_whole(std::size_t section, const RunSettings& settings);

  // Decoding without the host between tokens. Queued sections are replayed one after the other, and each
  // passes its tokens on to the next. Their tokens are read later, in the same order, at most kAhead sections
  // behind. begin_queue() gives the tokens' addresses and the first section's settings; the sampling step
  // then counts up by itself. A later call must give the same addresses and batch. can_queue(): this is the
  // only rank, the device replays work, the section takes one token per sequence, and the context's length
  // changes no operand's size.
  static constexpr std::int64_t kAhead = 2;
  bool can_queue(std::size_t section) const;
  void begin_queue(const RunSettings& settings, const TokenLoop& loop);
  void queue(std::size_t section);
  void read_queued(std::span<std::int32_t> tokens);
  void end_queue() { device_.synchronise(); }  // waits for what is queued; unread tokens are lost

  // The last run()'s time stamps in seconds: the start of each operation, then the end of the last.
  std::span<const double> stamps() const { return stamps_; }
  // The last run()'s actions in the order in which they ran, and when it began by the steady clock, in
  // seconds.
  std::vector<ActionSpan> action_spans() const;
  double began() const { return began_; }
  // Where ranks divide the experts: the busiest rank's rows over the mean rank's, averaged over the choices
  // so far. 0: no choice was made.
  double expert_imbalance() const;

 private:
  struct Bound {
    BoundOperation operation;
    std::size_t row = 0;
    bool is_followed = false;  // always, by the operation behind it here (sim/plan/neighbours.h)
    std::size_t may_fuse = 1;  // how many operations, from this one on, one kernel may run together
    const sim::Action* action = nullptr;
  };

  // What a capture holds: bound operations, with their operands.
  struct Captured {
    std::vector<Bound> bound;
    std::vector<BoundOperand> operands;
    kernels::SamplingSettings sampling;
    std::size_t section = 0;
    bool passes_tokens_on = false;
  };

  // Block, layer and micro-batch. Together they decide the operands' addresses.
  using Coordinates = std::tuple<sim::BlockId, std::int32_t, std::int32_t>;
  using Instances = std::vector<const sim::Instance*>;  // operands of all operations in order; null: absent

  const Instances& instances_of(const sim::Action& action);
  void index_rows();
  void bind(std::size_t section);
  void find_what_may_fuse();
  BoundOperand bind(const sim::Operand& operand, const sim::Instance& instance,
                    const sim::Variables& variables);
  const sim::Instance& find(sim::BufferId buffer, std::int32_t layer, std::int32_t micro_batch) const;
  Arena& arena_of(sim::BufferId buffer);
  const Arena& arena_of(sim::BufferId buffer) const;
  // Runs bound_[i], and those behind it that the device runs in the same kernel.
  FusedRun execute_from(std::size_t i, const RunSettings& settings);
  void communicate(const Bound& bound);
  void carry_out(const Bound& bound, const Members& members, std::span<const BoundOperand> operands);
  // Whether its members begin this sum in different orders (DualPipe's two directions). Such sums end before
  // the optimizer.
  bool is_of_directions(const Bound& bound) const;
  bool ends_sums(std::size_t i) const;  // before operation i
  void end_sums();
  void send_or_receive(const Bound& bound);
  bool can_capture() const;
  // Context parallelism. Columns of wider rows, such as keys and values in packed qkv, are not adjacent.
  // Messages pack and unpack them; so do those between all heads of some rows and some heads of all rows.
  bool gathers_columns(const BoundOperation& operation) const;
  void gather_columns(const BoundOperation& operation, const Members& members);
  bool in_columns(const sim::Operand& operand) const;
  void with_columns_together(const Bound& bound,
                             const std::function<void(std::span<const BoundOperand>)>& act);
  void exchange_heads(const Bound& bound);
  // Runs an operation that depends on positions, one segment of a sequence after the other.
  void run_by_segments(const Bound& bound, const RunSettings& settings);
  // Moves rows of experts between ranks. Their places follow from the choices that earlier operations read.
  void move_expert_rows(const Bound& bound);
  ExpertRows& expert_rows_of(const Bound& bound);
  void learn_expert_rows(const Bound& bound);
  void run_bound(const RunSettings& settings);
  bool is_bound_alike(const Captured& captured, const RunSettings& settings) const;
  bool has_alike_actions(std::size_t a, std::size_t b) const;  // of sections that can be queued

  const sim::Plan& plan_;
  const sim::MemoryPlan& memory_;
  const sim::MemoryPlan host_memory_;
  const sim::Program& program_;
  Device& device_;
  Communicator& communicator_;
  std::vector<Members> groups_;             // those of the plan, as this rank is in them
  std::unique_ptr<Collectives> of_device_;  // where its memory is not the host's
  Collectives& collectives_;
  Arena arena_;
  std::optional<Arena> host_arena_;

  std::vector<RowKey> rows_;
  // Rows of a block's operations in a phase: rows_of_[phase * blocks + block][operation].
  std::vector<std::vector<std::size_t>> rows_of_;

  // Whether an operation of a block and the one behind it may be one kernel: [block][operation].
  std::vector<std::vector<bool>> pairs_;

  std::map<Coordinates, Instances> instances_;  // found once

  // The bound operations of one section are kept: a training step is bound once and run often.
  std::size_t bound_section_ = static_cast<std::size_t>(-1);
  std::vector<Bound> bound_;
  std::vector<BoundOperand> operands_;
  std::vector<const Bound*> begun_sums_;
  std::map<std::pair<std::int32_t, std::int32_t>, ExpertRows> expert_rows_;  // by layer and micro-batch
  double expert_imbalance_ = 0;      // sum over the choices that were made
  std::int64_t expert_choices_ = 0;  // of a layer and micro-batch
  std::vector<double> stamps_;
  double began_ = 0;
  std::vector<Captured> captured_;  // by number

  RunSettings queue_settings_;
  TokenLoop token_loop_;
  std::int64_t queued_ = 0, read_ = 0;  // sampling steps
};

}  // namespace runtime
