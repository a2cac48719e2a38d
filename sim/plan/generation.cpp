// Generation: the prompt at once, then a token at a time; the residual stream is one buffer, updated in
// place.
#include <algorithm>

#include "sim/plan/decoder.h"
#include "sim/plan/layer_division.h"
#include "sim/plan/programs.h"
#include "sim/plan/writing.h"

namespace sim {
namespace {

constexpr std::int64_t kInt8ScaleBytes = 4;  // an fp32 scale for each row of a KV cache

struct GenerationBuffers {
  BufferId tokens, positions = kNoBuffer, rope_table = kNoBuffer, local_rope_table = kNoBuffer;
  // For layers that see all tokens, and for those that see a window or a segment of them.
  KvCache cache, window_cache;
  StateSpaceCache states;  // of layers that have no keys and values
  BufferId residual, logits, next_tokens;
};

// The whole vocabulary, with the padding that lets ranks divide it.
std::int64_t all_of_vocabulary(const PlanBuilder& b) {
  return b.model().vocab_size * (b.divides_vocabulary() ? b.strategy().tensor_parallel : 1);
}

GenerationBuffers add_buffers(PlanBuilder& b) {
  const Model& m = b.model();
  const Workload& w = b.scenario().workload;
  const ElementTypes& t = b.types();
  const std::int64_t capacity = w.prompt_length + w.max_new_tokens;
  GenerationBuffers r;
  r.tokens = b.add_input(buffer_names::tokens, DType::int32, {kBatch, kQueryLength});
  if (w.kv_cache) r.positions = b.add_input(buffer_names::positions, DType::int32, {kBatch});
  if (m.position == Position::rope)
    r.rope_table = b.add_input(buffer_names::rope_table, t.statistic, {capacity, m.rope_size()});
  r.local_rope_table = add_local_rope_table(b, capacity);
  if (w.kv_cache) {
    // A sequence takes whole blocks of the cache, so the room that its last block has too much stays empty.
    const bool paged = w.kv_block > 0;
    const auto blocks_of = [&](std::int64_t tokens) {
      return paged ? (tokens + w.kv_block - 1) / w.kv_block : std::int64_t{1};
    };
    const auto cache = [&](const std::string& name, std::int64_t heads, std::int64_t tokens,
                           std::int64_t width) {
      return b.add({.name = name,
                    .buffer_class = BufferClass::kv_cache,
                    .dtype = t.cache,
                    .shape = {kBatch * blocks_of(tokens), heads, paged ? w.kv_block : tokens, width},
                    .lifetime = Lifetime::plan,
                    .per_layer = true});
    };
    const BufferId scales =
        t.cache == DType::fp8 && !m.has_latent_attention()
            ? b.add_input(buffer_names::kv_scales, t.statistic, {2, m.num_key_value_heads})
            : kNoBuffer;
    for (const LayerKind kind : layer_kinds(b.scenario())) {
      if (kind.has_states() && r.states.states == kNoBuffer) r.states = add_state_space_cache(b);
      KvCache& of_kind = kind.window ? r.window_cache : r.cache;
      if (!kind.attends() || of_kind) continue;
      const std::string prefix = kind.window ? "layer.window." : "layer.";
      const std::int64_t tokens = kind.window ? std::min(capacity, m.reach_of_windows()) : capacity;
      const BufferId table =
          paged ? b.add_input(kind.window ? buffer_names::window_block_table : buffer_names::block_table,
                              DType::int32, {kBatch, blocks_of(tokens)})
                : kNoBuffer;
      if (m.has_latent_attention()) {
        of_kind.latent.table = table;
        of_kind.latent.latent = cache(prefix + "latent_cache", 1, tokens, m.cache_size());
        continue;
      }
      of_kind.table = table;
      of_kind.scales = scales;
      // A row of int8 has its own scale behind it.
      const bool codes = t.cache == DType::int8 && b.scenario().implementation.runs_here;
      const std::int64_t width = m.head_dim + (codes ? kInt8ScaleBytes : 0);
      of_kind.k = cache(prefix + "k_cache", m.num_key_value_heads, tokens, width);
      of_kind.v = cache(prefix + "v_cache", m.num_key_value_heads, tokens, width);
    }
  }
  const auto add = [&](std::string_view name, DType dtype, const Shape& shape, Lifetime lifetime) {
    return b.add({.name = std::string(name),
                  .buffer_class = BufferClass::activation,
                  .dtype = dtype,
                  .shape = shape,
                  .lifetime = lifetime});
  };
  r.residual = add("residual", t.stored, {kRows, m.hidden_size}, Lifetime::uses);
  // The caller looks at these two after every section.
  r.logits = add(buffer_names::logits, t.statistic, {kBatch, all_of_vocabulary(b)}, Lifetime::plan);
  r.next_tokens = add(buffer_names::next_tokens, DType::int32, {kBatch}, Lifetime::plan);
  return r;
}

Block embedding_forward(PlanBuilder& b, const DecoderParameters& p, const GenerationBuffers& r) {
  const Model& m = b.model();
  const BufferId out = m.embedding_norm ? b.add_scratch("embedding.forward", "embedding.out",
                                                        b.types().stored, {kRows, m.hidden_size})
                                        : r.residual;
  const bool scales = m.embedding_multiplier != 1;
  const BufferId unscaled = scales ? b.add_scratch("embedding.forward", "embedding.unscaled",
                                                   b.types().stored, {kRows, m.hidden_size})
                                   : out;
  Block block{"embedding.forward",
              {operation("embedding.forward", OpKind::embedding, b.types().statistic,
                         {.rows = kRows, .hidden = m.hidden_size, .vocab = m.vocab_size},
                         {writes(unscaled), reads(r.tokens), reads(p.embedding.parameter),
                          reads(p.position_embedding.parameter), reads(r.positions)})},
              BlockRole::embedding,
              BlockPass::forward};
  add_scales(b, p.embedding.parameter, block.operations.front());
  if (b.divides_vocabulary())
    append(block.operations, sum_over_tensor_ranks(b, "embedding", Phase::forward, unscaled, kNoBuffer));
  if (scales) block.operations.push_back(scale_embedding(b, "forward", writes(out), unscaled));
  if (m.embedding_norm)
    append(block.operations,
           norm_forward(b, "embedding_norm", p.embedding_norm, {.out = r.residual}, reads(out), kRows));
  return block;
}

// Latent attention works differently while it decodes.
Block layer(PlanBuilder& b, const DecoderParameters& p, const GenerationBuffers& r, LayerKind kind,
            bool decodes) {
  const std::string name = kind.prefix() + (decodes ? ".decode" : ".forward");
  LayerContext context{
      .kind = kind,
      .residual_in = reads(r.residual),
      .residual_out = updates(r.residual),
      .rope_table = kind.window && r.local_rope_table != kNoBuffer ? r.local_rope_table : r.rope_table,
      .positions = r.positions,
      .cache = kind.window ? r.window_cache
               : kind.attends()
                   ? r.cache
                   : KvCache{.latent = {}, .states = kind.has_states() ? r.states : StateSpaceCache{}}};
  context.cache.latent.absorbed = decodes;
  return {name,
          layer_forward(b, name, p,
                        add_inference_results(b, name, r.residual, static_cast<bool>(context.cache), kind),
                        with_scratch(b, name, context)),
          BlockRole::layer, BlockPass::forward};
}

// Only the last row of each sequence decides the next token.
Block head(PlanBuilder& b, const DecoderParameters& p, const GenerationBuffers& r) {
  const Model& m = b.model();
  Block block{"head.forward", {}, BlockRole::head, BlockPass::forward};
  const BufferId last = b.add_scratch(block.name, "last_rows", b.types().stored, {kBatch, m.hidden_size});
  const NormResult norm{
      .out = b.add_scratch(block.name, "final_norm.out", b.types().stored, {kBatch, m.hidden_size})};
  block.operations.push_back(operation("head.gather_last", OpKind::gather_last, b.types().statistic,
                                       {.rows = kRows, .cols = m.hidden_size},
                                       {writes(last), reads(r.residual)}));
  append(block.operations, norm_forward(b, "final_norm", p.final_norm, norm, reads(last), kBatch));
  const bool divided = b.divides_vocabulary();
  const BufferId own =
      divided ? b.add_scratch(block.name, "logits_of_this_rank", b.types().statistic, {kBatch, m.vocab_size})
              : r.logits;
  block.operations.push_back(matmul(b, "head.logits.forward", writes(own), reads(norm.out), {p.head, {}}, {},
                                    {.rows = kBatch, .cols = m.vocab_size, .inner = m.hidden_size}));
  if (divided)
    block.operations.push_back(collective("head.logits.all_gather", OpKind::all_gather, b.types().statistic,
                                          b.groups().tensor, {writes(r.logits), reads(own)}));
  block.operations.push_back({.id = "head.sample",
                              .kind = OpKind::sample,
                              .dtype = b.types().statistic,
                              .dims = {.rows = kBatch, .vocab = all_of_vocabulary(b)},
                              .operands = {writes(r.next_tokens), reads(r.logits)},
                              .cap = static_cast<float>(m.final_logit_softcapping)});
  return block;
}

// What stages send each other. The batch goes from stage to stage as a whole.
void add_transfers(PlanBuilder& b, const GenerationBuffers& r, GenerationPlan& generation) {
  if (b.groups().pipeline < 0) return;
  const auto add = [&](const char* name, OpKind kind, DType dtype, const Operand& operand) {
    return b.add(
        {name, list_of(collective(name, kind, dtype, b.groups().pipeline, {operand})), BlockRole::transfer});
  };
  const DType stored = b.types().stored;
  generation.send_activation = add("pipeline.activation.send", OpKind::send, stored, reads(r.residual));
  generation.receive_activation =
      add("pipeline.activation.receive", OpKind::receive, stored, writes(r.residual));
  generation.send_tokens = add("pipeline.tokens.send", OpKind::send, DType::int32, reads(r.next_tokens));
  generation.receive_tokens =
      add("pipeline.tokens.receive", OpKind::receive, DType::int32, writes(r.next_tokens));
}

// One stage's part of a section.
class SectionWriter {
 public:
  SectionWriter(const GenerationPlan& generation, std::int64_t token, std::int32_t stage, Program& program)
      : generation_(generation), stage_(stage), program_(program) {
    const Workload& w = generation.plan.scenario.workload;
    const std::int64_t length = w.prompt_length + token;
    phase_ = token == 0 ? Phase::prefill : Phase::decode;
    variables_ = {
        .batch = w.batch_size, .query_length = token == 0 || !w.kv_cache ? length : 1, .kv_length = length};
  }

  void write() {
    const Scenario& scenario = generation_.plan.scenario;
    const std::int32_t last = scenario.strategy.pipeline_parallel - 1;
    const std::vector<BlockId>& layers = phase_ == Phase::prefill ? generation_.prefill : generation_.decode;
    const auto all = static_cast<std::int32_t>(layers.size());
    const LayerRange own = last > 0 ? layers_of(scenario, stage_) : LayerRange{0, all};
    if (stage_ == 0)
      add(generation_.embedding, 0);
    else
      receive(generation_.receive_activation, own.first, stage_ - 1);
    for (std::int32_t l = own.first; l < own.last; ++l) add(layers[static_cast<std::size_t>(l)], l);
    if (stage_ < last) {
      send(generation_.send_activation, own.last, stage_ + 1);
      receive(generation_.receive_tokens, all, last);
      return;
    }
    add(generation_.head, all);
    for (std::int32_t other = 0; other < last; ++other) send(generation_.send_tokens, all, other);
  }

 private:
  Action& add(BlockId block, std::int32_t layer) {
    program_.actions.push_back({.block = block, .phase = phase_, .layer = layer, .variables = variables_});
    return program_.actions.back();
  }
  void receive(BlockId block, std::int32_t layer, std::int32_t from) { add(block, layer).peer = from; }
  // The last action of the compute stream has computed what is sent.
  void send(BlockId block, std::int32_t layer, std::int32_t to) {
    auto computed = static_cast<std::int32_t>(program_.actions.size()) - 1;
    while (program_.actions[static_cast<std::size_t>(computed)].stream != kComputeStream) --computed;
    Action& action = add(block, layer);
    action.stream = kSendStream;
    action.wait = computed;
    action.peer = to;
  }

  const GenerationPlan& generation_;
  std::int32_t stage_;
  Program& program_;
  Phase phase_{};
  Variables variables_;
};

}  // namespace

GenerationPlan make_generation_blocks(const Scenario& scenario) {
  PlanBuilder b(scenario);
  const DecoderParameters parameters = add_parameters(b, false);
  const bool any_mixed = std::ranges::any_of(layer_kinds(scenario), &LayerKind::mixed);
  const DecoderParameters mixed = any_mixed ? with_mixed_weights(b, parameters) : parameters;
  const GenerationBuffers buffers = add_buffers(b);
  const Model& model = scenario.model;
  GenerationPlan generation;
  generation.embedding = b.add(embedding_forward(b, parameters, buffers));
  const auto add_layers = [&](bool decodes) {
    const std::vector<LayerKind> kinds = layer_kinds(scenario);
    std::vector<BlockId> of_kind, of_layer;
    for (const LayerKind kind : kinds)
      of_kind.push_back(b.add(layer(b, kind.mixed ? mixed : parameters, buffers, kind, decodes)));
    for (std::int64_t l = 0; l < model.num_hidden_layers; ++l) {
      const auto at = std::ranges::find(kinds, kind_of_layer(scenario, l)) - kinds.begin();
      of_layer.push_back(of_kind[static_cast<std::size_t>(at)]);
    }
    return of_layer;
  };
  generation.prefill = add_layers(false);
  const bool decodes_otherwise =
      model.has_latent_attention() && scenario.workload.kv_cache && scenario.workload.max_new_tokens > 1;
  generation.decode = decodes_otherwise ? add_layers(true) : generation.prefill;
  generation.head = b.add(head(b, parameters, buffers));
  add_transfers(b, buffers, generation);
  generation.plan = b.take();
  return generation;
}

std::vector<Program> generation_programs(const Scenario& scenario) {
  std::vector<Program> programs;
  const std::int32_t stages = scenario.strategy.pipeline_parallel;
  for (std::int32_t stage = 0; stage < stages; ++stage)
    programs.push_back(
        {.role = stages == 1 ? "target" : "stage " + std::to_string(stage), .actions = {}, .sections = {}});
  return programs;
}

void append_token(const GenerationPlan& generation, std::int64_t token, std::vector<Program>& programs) {
  for (std::size_t stage = 0; stage < programs.size(); ++stage) {
    Program& program = programs[stage];
    const std::size_t begin = program.actions.size();
    SectionWriter(generation, token, static_cast<std::int32_t>(stage), program).write();
    program.sections.push_back(
        {token == 0 ? "prefill" : "token " + std::to_string(token), begin, program.actions.size()});
  }
}

Plan make_generation_plan(const Scenario& scenario) {
  GenerationPlan generation = make_generation_blocks(scenario);
  const auto tokens = static_cast<std::size_t>(scenario.workload.max_new_tokens);
  std::vector<Program> programs = generation_programs(scenario);
  for (Program& program : programs) {
    program.sections.reserve(tokens);
    program.actions.reserve(tokens * (generation.prefill.size() / programs.size() + 3));
  }
  for (std::int64_t token = 0; token < scenario.workload.max_new_tokens; ++token)
    append_token(generation, token, programs);
  generation.plan.programs = std::move(programs);
  return std::move(generation.plan);
}

}  // namespace sim
