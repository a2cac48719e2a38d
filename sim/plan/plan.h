// The plan: what is computed, in which order, on which buffers. It holds work, not time; hardware enters in
// predict(), a device in runtime's measure().
//
//   Buffer     what memory is for
//   Block      a list of operations, written once (layer, its backward, embedding, head, optimizer, ...)
//   Action     one entry of a program: a block at a layer and micro-batch, with its variables bound
//   Program    the actions of one role, in order; all ranks of a pipeline stage share it
//
// A row of a report is (phase, operation id); layer, micro-batch and rank are coordinates, not part of the
// id.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/enum_array.h"
#include "sim/plan/operation.h"
#include "sim/scenario/scenario.h"

namespace sim {

enum class BufferClass {
  parameter,
  gradient,
  optimizer,
  activation,
  kv_cache,
  scratch,
  communication,
  input
};
inline constexpr int kBufferClasses = kCount<BufferClass>;

enum class Lifetime {
  plan,       // exists before the first action and after the last
  first_use,  // from its first write to the end of the plan (an optimizer state made in the first step)
  uses,       // from its first use in a step to its last
  pass,       // from its first use to the end of the backward pass of the micro-batch
};

struct Buffer {
  std::string name;  // "layer.attention.qkv.weight"
  BufferClass buffer_class{};
  DType dtype{};
  Shape shape;
  Lifetime lifetime = Lifetime::uses;
  bool per_layer = false;        // an instance for each layer index
  bool per_micro_batch = false;  // an instance for each micro-batch
  // For a gradient, a moment or a master copy: its parameter. The buffer's name says which moment it is.
  BufferId parameter = kNoBuffer;
  // A view has no memory of its own: it is this rank's part (ZeRO) of the buffer view_of, or rows of it.
  BufferId view_of = kNoBuffer;
  std::int32_t part = 0;  // of a view: how many parts of the same size lie before it
  // For a view of columns: its first column in the rows of view_of, and the width of those rows (row_width 0:
  // the view is of whole rows).
  std::int64_t first_column = 0, row_width = 0;
  // For ZeRO's flat shards: the group whose rank i has part i. The last parts are smaller where the ranks do
  // not divide the size evenly. In a view, i takes the place of `part`.
  std::int32_t shard_group = -1;
  bool on_host = false;  // in the host's memory

  std::int64_t elements(const Variables& v) const;
  Bytes bytes(const Variables& v) const;   // of one instance, with the expected sizes
  Bytes memory(const Variables& v) const;  // for one instance, with the largest sizes that may come
};

using BlockId = std::int32_t;

// What a block is for.
enum class BlockRole : std::uint8_t {
  embedding,
  layer,
  head,
  transfer,   // of activations and gradients between pipeline stages
  gather,     // of a unit's parameters from the ranks that hold shards
  reduce,     // of a unit's gradients over ranks
  zero,       // of gradients
  copy,       // to the host's memory or from it
  optimizer,  // norms, clipping, update
};
// The pass over the model that a block of the embedding, a layer or the head belongs to; others have none.
enum class BlockPass : std::uint8_t { none, forward, recompute, backward, backward_input, backward_weight };
constexpr bool is_backward(BlockPass pass) {
  return pass >= BlockPass::backward;
}

struct Block {
  std::string name;  // "layer.forward"; for people and for joining reports
  std::vector<Operation> operations;
  BlockRole role = BlockRole::optimizer;
  BlockPass pass = BlockPass::none;
};

enum class Phase { forward, recompute, backward, optimizer, prefill, decode };

// Sends run beside compute and the other collectives; a receive stands in the stream that needs its message.
// Copies to the host and from it run beside each other, and the host computes beside everything else.
inline constexpr std::int32_t kComputeStream = 0, kCollectiveStream = 1, kSendStream = 2;
inline constexpr std::int32_t kToHostStream = 3, kFromHostStream = 4, kHostStream = 5;
inline constexpr std::int32_t kStreams = 6;

struct Action {
  BlockId block = 0;
  Phase phase{};
  std::int32_t layer =
      0;  // embedding: 0; head: num_hidden_layers; decoder layers: 0 .. num_hidden_layers - 1
  std::int32_t micro_batch = 0;
  std::int32_t chunk = 0;  // virtual pipeline stage
  std::int32_t stream = kComputeStream;
  // The action begins when the one before it in its stream has ended and the action `wait` has, too: an index
  // into the same program, of any stream; -1: none.
  std::int32_t wait = -1;
  std::int32_t wait_also = -1;  // the same, of one more stream
  std::int32_t peer = -1;       // send, receive: the other end's program; `chunk` is then the receiver's
  Variables variables;
};

// A part of a program after which whoever runs it may look at the results: a training step, the prefill,
// one token.
struct Section {
  std::string name;
  std::size_t begin = 0, end = 0;  // indices into Program::actions
};

struct Program {
  std::string role;  // "stage 0", "draft", "target"
  std::vector<Action> actions;
  std::vector<Section> sections;
};

// What the ranks of a group divide among themselves, or hold alike.
enum class Axis : std::uint8_t {
  tensor,
  key_value,  // tensor-parallel ranks that hold the same key-value head
  context,
  data,
  shard,    // of data: ranks that states are divided over
  replica,  // of data: ranks that hold the same shard
  expert,
  expert_data,  // ranks that hold the same experts
  pipeline,
  directions,      // the two stages that hold the same chunks (DualPipe)
  tied_embedding,  // first and last stage, which hold one table
};

// Ranks that communicate: `size` of them, at distances of `stride`; where other groups lie in between, in
// `outer_size` runs of equal length at distances of `outer_stride`.
struct Group {
  Axis axis{};
  std::int32_t size = 1;
  std::int32_t stride = 1;
  std::int32_t outer_size = 1, outer_stride = 0;
};

struct Plan {
  Scenario scenario;
  std::int32_t ranks = 1;
  std::vector<Group> groups;
  std::vector<Buffer> buffers;
  std::vector<Block> blocks;
  std::vector<Program> programs;  // one a role

  const Group& group(std::int32_t g) const { return groups[static_cast<std::size_t>(g)]; }
  const Buffer& buffer(BufferId b) const { return buffers[static_cast<std::size_t>(b)]; }
  const Block& block(BlockId b) const { return blocks[static_cast<std::size_t>(b)]; }

  // Where a buffer's memory is: the buffer that it is a view of, or itself.
  BufferId storage(BufferId b) const {
    const BufferId whole = buffer(b).view_of;
    return whole == kNoBuffer ? b : whole;
  }
  BufferId find(std::string_view buffer_name) const;  // kNoBuffer if there is none
  const Buffer* buffer(const Operand& o) const {      // null if there is none
    return o.buffer == kNoBuffer ? nullptr : &buffer(o.buffer);
  }
  // All operands of the role, together.
  double elements_of(const Operation& op, Role role, const Variables& v) const;
};

// Buffer names that the runtime fills or reads; parameters bear the names in plan/README.md.
namespace buffer_names {
inline constexpr std::string_view tokens = "input.tokens";        // int32 (batch, query_length)
inline constexpr std::string_view targets = "input.targets";      // int32 (batch, query_length)
inline constexpr std::string_view positions = "input.positions";  // int32 (batch): where the new tokens start
// int32 (batch, blocks): where a sequence's tokens lie in a cache of blocks.
inline constexpr std::string_view block_table = "input.block_table";
inline constexpr std::string_view window_block_table = "input.window_block_table";  // of layers with a window
// fp32 (2, key-value heads): what keys, then values, in an fp8 cache are multiplied by.
inline constexpr std::string_view kv_scales = "input.kv_scales";
inline constexpr std::string_view local_rope_table =
    "input.local_rope_table";  // as rope_table, for layers with windows where theirs differs
inline constexpr std::string_view rope_table =
    "input.rope_table";                               // fp32 (max positions, head_dim): cosines, sines
inline constexpr std::string_view losses = "losses";  // fp32 (batch * query_length), per micro-batch
inline constexpr std::string_view gradient_norm =
    "gradient_norm";  // fp64 (3): sum of squares, norm, clip scale
inline constexpr std::string_view first_gradient_squares =
    "first_gradient_squares";  // fp64 (1), workload.measure_noise: after the first micro-batch
inline constexpr std::string_view gradient_overflow =
    "gradient_overflow";  // fp32 (1), fp16 alone: 1 where a gradient was no number
inline constexpr std::string_view logits =
    "logits";  // all rows (training, head not in chunks), last rows (generation)
inline constexpr std::string_view next_tokens = "next_tokens";  // int32 (batch)
}  // namespace buffer_names

// Requires validate(scenario).empty(); throws std::invalid_argument naming the first problem otherwise.
//
// train: a program for each pipeline stage, "stage 0", ...; one section "step": forward and backward of each
// micro-batch in the order of the schedule (plan/schedule.h), then the optimizer. Buffers are those of one
// rank. Ranks are numbered as strategy.rank_order says: tensor fastest, then context, data, pipeline unless
// it says otherwise. generate: a program "target", or one for each pipeline stage, with a section "prefill",
// then one "token k" for each further token. Without a KV cache each token's section is the whole forward
// pass at the length reached. Stages work one after the other: the batch goes from each to the next as a
// whole, and the last sends the new tokens to all others.
Plan make_plan(const Scenario& scenario);

}  // namespace sim
