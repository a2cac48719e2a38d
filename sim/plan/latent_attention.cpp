#include "sim/plan/latent_attention.h"

#include "sim/plan/decoder.h"
#include "sim/plan/writing.h"

namespace sim {
namespace {

// A view of the beginning of another buffer: `cols` columns of all its rows, one row after the other.
BufferId beginning_of(PlanBuilder& b, BufferId whole, const std::string& suffix, std::int64_t cols) {
  return add_view(b, whole, suffix, {b.buffer(whole).shape.front(), cols});
}

Dims core_dims(const Model& m, LayerKind kind = {}) {
  return {.heads = m.num_attention_heads,
          .kv_heads = m.num_attention_heads,
          .head_dim = m.head_dim,
          .value_dim = m.latent.v_head_dim,
          .rope_dim = m.latent.qk_rope_head_dim,
          .window = kind.window ? m.sliding_window : 0,
          .chunk = kind.window ? m.attention_chunk_size : 0};
}

std::int64_t up_size(const Model& m) {
  return m.num_attention_heads * (m.latent.qk_nope_head_dim + m.latent.v_head_dim);
}
std::int64_t expanded_size(const Model& m) {
  return m.num_attention_heads * (m.head_dim + m.latent.v_head_dim);
}
std::int64_t down_size(const Model& m) {
  return m.latent.kv_lora_rank + m.latent.qk_rope_head_dim;
}

Operation latent_norm(const PlanBuilder& b, const std::string& id, const Tensor& weight, BufferId out,
                      BufferId rstd, BufferId inp, std::int64_t rank) {
  Operation op = operation(id + ".forward", OpKind::rmsnorm, b.types().statistic,
                           {.rows = b.stream_rows(), .hidden = rank},
                           {writes(out), writes(rstd), reads(inp), reads(weight.parameter)});
  op.scalar = static_cast<float>(b.model().norm_eps);
  return op;
}

Dims product(Extent rows, std::int64_t cols, std::int64_t inner) {
  return {.rows = rows, .cols = cols, .inner = inner};
}

// The up-projection `up` of keys or values as one product for each head: rows are tokens times heads. The
// product reads some of its rows, as many of each head, which lie between others: `what` names them. The
// addresses are those of the whole.
Operation of_each_head(PlanBuilder& b, const std::string& block, const std::string& what, Place place,
                       std::int64_t cols, std::int64_t inner, BufferId out, BufferId inp, BufferId up) {
  const std::int64_t heads = b.model().num_attention_heads;
  const std::int64_t rows = heads * (place == Place::absorbs_keys ? inner : cols);
  const auto rows_of = [&](BufferId whole) {
    Buffer part = b.buffer(whole);
    part.name = block + "." + part.name + "." + what;
    part.shape[0] = rows;
    part.view_of = whole;
    return b.add(std::move(part));
  };
  Dims dims = core_dims(b.model());
  dims.rows = kRows * Extent{heads};
  dims.cols = cols;
  dims.inner = inner;
  dims.groups = dims.experts = dims.chosen = heads;
  Operation op = operation("layer.attention.absorb_" + what + ".forward", OpKind::grouped_matmul,
                           b.types().product, dims, {writes(out), reads(inp), reads(rows_of(up))});
  op.place = place;
  add_scales(b, up, op);
  for (auto i = static_cast<std::size_t>(index_of(op.kind, Role::weight_scales)); i < op.operands.size(); ++i)
    op.operands[i].buffer = rows_of(op.operands[i].buffer);
  return op;
}

}  // namespace

LatentResults add_latent_results(PlanBuilder& b, const std::string& block, AddBuffer add, bool statistics) {
  const Model& m = b.model();
  const LatentAttention& a = m.latent;
  const ElementTypes& t = b.types();
  const Extent rows = b.stream_rows();
  const auto add_rstd = [&](const char* name) {
    return statistics ? add(b, block, name, t.statistic, {rows}) : kNoBuffer;
  };
  LatentResults r;
  if (a.q_lora_rank > 0) {
    r.q_down = add(b, block, "layer.attention.q_down", t.stored, {rows, a.q_lora_rank});
    r.q_latent = add(b, block, "layer.attention.q_norm.out", t.stored, {rows, a.q_lora_rank});
    r.q_rstd = add_rstd("layer.attention.q_norm.rstd");
  }
  r.kv_down = add(b, block, "layer.attention.kv_down", t.stored, {rows, down_size(m)});
  r.kv_down_latent = add_column_view(b, r.kv_down, ".latent", 0, a.kv_lora_rank);
  r.key = add_column_view(b, r.kv_down, ".key", a.kv_lora_rank, a.qk_rope_head_dim);
  r.kv_latent = add(b, block, "layer.attention.kv_norm.out", t.stored, {rows, a.kv_lora_rank});
  r.kv_rstd = add_rstd("layer.attention.kv_norm.rstd");
  r.q = add(b, block, "layer.attention.q", t.stored, {kRows, m.query_size()});
  r.kv = add(b, block, "layer.attention.kv", t.stored, {kRows, expanded_size(m)});
  r.kv_up = beginning_of(b, r.kv, ".up", up_size(m));
  return r;
}

LatentScratch add_latent_scratch(PlanBuilder& b, const std::string& block) {
  LatentScratch s;
  if (!b.strategy().sequence_parallel) return s;
  const LatentAttention& a = b.model().latent;
  const auto add = [&](const char* name, std::int64_t cols) {
    return b.add_scratch(block, std::string("layer.attention.") + name, b.types().stored, {kRows, cols});
  };
  if (a.q_lora_rank > 0) s.q_latent = add("q_latent.gathered", a.q_lora_rank);
  s.kv_latent = add("kv_latent.gathered", a.kv_lora_rank);
  s.key = add("key.gathered", a.qk_rope_head_dim);
  return s;
}

namespace {

std::vector<Operation> latent_core_forward(const PlanBuilder& b, LayerKind kind, const LatentResults& r,
                                           BufferId out, BufferId lse) {
  return {operation("layer.attention.flash.forward", OpKind::attention_latent, b.types().wide_product,
                    core_dims(b.model(), kind), {writes(out), writes(lse), reads(r.q), reads(r.kv)})};
}

// For decoding, the up-projections multiply the queries and attention's result instead.
std::vector<Operation> absorbed_attention(PlanBuilder& b, const std::string& block, const LatentParameters& p,
                                          const LatentResults& r, const LatentCache& cache, BufferId out,
                                          BufferId positions) {
  const Model& m = b.model();
  const LatentAttention& a = m.latent;
  const std::int64_t heads = m.num_attention_heads, rank = a.kv_lora_rank;
  const auto add = [&](const char* name, std::int64_t cols) {
    return b.add_scratch(block, std::string("layer.attention.") + name, b.types().stored, {kRows, cols});
  };
  const BufferId absorbed = add("q_absorbed", heads * rank);
  const BufferId attended = add("latent_out", heads * rank);
  return {
      of_each_head(b, block, "keys", Place::absorbs_keys, rank, a.qk_nope_head_dim, absorbed,
                   beginning_of(b, r.q, ".of_latent", heads * a.qk_nope_head_dim), p.kv_up.weight.parameter),
      operation("layer.attention.cached.forward", OpKind::attention_latent_cached, b.types().wide_product,
                {.heads = heads,
                 .kv_heads = 1,
                 .head_dim = down_size(m),
                 .value_dim = rank,
                 .rope_dim = a.qk_rope_head_dim},
                {writes(attended), reads(absorbed), reads(r.q), reads(cache.latent), reads(positions),
                 reads(cache.table)}),
      of_each_head(b, block, "values", Place::absorbs_values, a.v_head_dim, rank, out, attended,
                   p.kv_up.weight.parameter)};
}

}  // namespace

std::vector<Operation> latent_attention_forward(PlanBuilder& b, const std::string& block,
                                                const LatentParameters& p, const LatentResults& r,
                                                const LatentScratch& s, const LatentCache& cache,
                                                LayerKind kind, BufferId rows, BufferId whole, BufferId out,
                                                BufferId lse, BufferId table, BufferId positions) {
  const Model& m = b.model();
  const LatentAttention& a = m.latent;
  const std::int64_t hidden = m.hidden_size;
  const Extent own = b.stream_rows();
  const bool gathers = s.kv_latent != kNoBuffer, has_q_latent = r.q_latent != kNoBuffer;
  std::vector<Operation> ops;
  if (has_q_latent) {
    ops.push_back(matmul(b, "layer.attention.q_down.forward", writes(r.q_down), reads(rows), p.q_down, {},
                         product(own, a.q_lora_rank, hidden)));
    ops.push_back(
        latent_norm(b, "layer.attention.q_norm", p.q_norm, r.q_latent, r.q_rstd, r.q_down, a.q_lora_rank));
  }
  ops.push_back(matmul(b, "layer.attention.kv_down.forward", writes(r.kv_down), reads(rows), p.kv_down, {},
                       product(own, down_size(m), hidden)));
  ops.push_back(latent_norm(b, "layer.attention.kv_norm", p.kv_norm, r.kv_latent, r.kv_rstd, r.kv_down_latent,
                            a.kv_lora_rank));
  if (gathers) {
    Operation gather =
        collective("layer.attention.latents.all_gather.forward", OpKind::all_gather, b.types().stored,
                   b.groups().tensor, {writes(s.kv_latent), reads(r.kv_latent), writes(s.key), reads(r.key)});
    if (has_q_latent) {
      gather.operands.push_back(writes(s.q_latent));
      gather.operands.push_back(reads(r.q_latent));
    }
    ops.push_back(std::move(gather));
  }
  const BufferId q_inp = has_q_latent ? (gathers ? s.q_latent : r.q_latent) : whole;
  const BufferId kv_inp = gathers ? s.kv_latent : r.kv_latent, key = gathers ? s.key : r.key;
  ops.push_back(matmul(b, "layer.attention.q_up.forward", writes(r.q), reads(q_inp), p.q_up, {},
                       product(kRows, m.query_size(), has_q_latent ? a.q_lora_rank : hidden)));
  if (!cache.absorbed)
    ops.push_back(matmul(b, "layer.attention.kv_up.forward", writes(r.kv_up), reads(kv_inp), p.kv_up, {},
                         product(kRows, up_size(m), a.kv_lora_rank)));
  ops.push_back(operation("layer.attention.rope.forward", OpKind::rope_latent, b.types().statistic,
                          core_dims(m),
                          {updates(r.q), updates(key), cache.absorbed ? Operand{} : updates(r.kv),
                           reads(table), reads(positions)}));
  if (cache.latent != kNoBuffer)
    ops.push_back(
        operation("layer.attention.kv_append.forward", OpKind::latent_append, b.types().statistic,
                  {.heads = 1, .kv_heads = 1, .head_dim = down_size(m), .rope_dim = a.qk_rope_head_dim},
                  {updates(cache.latent), reads(kv_inp), reads(key), reads(positions), reads(cache.table)}));
  append(ops, cache.absorbed ? absorbed_attention(b, block, p, r, cache, out, positions)
                             : latent_core_forward(b, kind, r, out, lse));
  return ops;
}

LatentBackward latent_attention_backward(PlanBuilder& b, const std::string& block, const LatentParameters& p,
                                         const LatentResults& r, LayerKind kind, BufferId rows, BufferId out,
                                         BufferId lse, BufferId dout, BufferId table) {
  const Model& m = b.model();
  const LatentAttention& a = m.latent;
  const ElementTypes& t = b.types();
  const std::int64_t hidden = m.hidden_size;
  const Extent own = b.stream_rows();
  const bool gathers = b.strategy().sequence_parallel, has_q_latent = r.q_latent != kNoBuffer;
  const AddBuffer read_by_weights = b.splits_backward() ? kept : scratch;
  const std::string weights = b.splits_backward() ? weight_block(block) : block;
  const auto add = [&](const std::string& name, Extent n, std::int64_t cols) {
    return b.add_scratch(block, "layer.attention." + name + ".gradient", t.stored, {n, cols});
  };
  const auto add_kept = [&](const std::string& name, Extent n, std::int64_t cols) {
    return read_by_weights(b, block, "layer.attention." + name + ".gradient", t.stored, {n, cols});
  };
  std::vector<Operation> ops;
  const BufferId d_q = add_kept("q", kRows, m.query_size());
  const BufferId d_kv = add_kept("kv", kRows, expanded_size(m));
  const BufferId d_key = add("key", kRows, a.qk_rope_head_dim);
  ops.push_back(operation(
      "layer.attention.flash.backward", OpKind::attention_latent_backward, t.wide_product, core_dims(m, kind),
      {writes(d_q), writes(d_kv), reads(dout), reads(r.q), reads(r.kv), reads(out), reads(lse)}));
  ops.push_back(operation("layer.attention.rope.backward", OpKind::rope_latent_backward, t.statistic,
                          core_dims(m), {updates(d_q), writes(d_key), reads(d_kv), reads(table)}));

  // Backward of the up-projections. What they read of all rows is gathered again.
  const auto up = [&](const std::string& id, BufferId d_result, BufferId from, const Affine& affine,
                      std::int64_t cols, std::int64_t inner) {
    if (gathers) {
      const BufferId all = b.add_scratch(weights, id + ".gathered", t.stored, {kRows, inner});
      ops.push_back(gather_rows(b, id, Phase::backward, all, from));
      from = all;
    }
    const BufferId dinp = b.add_scratch(block, id + ".inp.gradient", t.stored, {kRows, inner});
    append(ops, matmul_backward(b, id, dinp, d_result, from, affine, product(kRows, cols, inner)));
    return dinp;
  };
  const std::int64_t q_inner = has_q_latent ? a.q_lora_rank : hidden;
  BufferId d_q_inp =
      up("layer.attention.q_up", d_q, has_q_latent ? r.q_latent : rows, p.q_up, m.query_size(), q_inner);
  BufferId d_kv_latent = up("layer.attention.kv_up", beginning_of(b, d_kv, ".up", up_size(m)), r.kv_latent,
                            p.kv_up, up_size(m), a.kv_lora_rank);

  // Gradients are summed over the ranks, which have other heads.
  const BufferId d_kv_down = add_kept("kv_down", own, down_size(m));
  const BufferId d_down_key = add_column_view(b, d_kv_down, ".key", a.kv_lora_rank, a.qk_rope_head_dim);
  BufferId d_own_key = d_key;
  if (b.tensor_parallel()) {
    Operation sum =
        collective(gathers ? "layer.attention.latents.reduce_scatter.backward"
                           : "layer.attention.latents.all_reduce.backward",
                   gathers ? OpKind::reduce_scatter : OpKind::all_reduce, t.stored, b.groups().tensor, {});
    const auto summed = [&](const std::string& name, BufferId whole, std::int64_t cols) {
      if (!gathers) {
        sum.operands.push_back(updates(whole));
        return whole;
      }
      const BufferId of_own = add(name + ".rows", own, cols);
      sum.operands.push_back(writes(of_own));
      sum.operands.push_back(reads(whole));
      return of_own;
    };
    d_q_inp = summed("q_latent", d_q_inp, q_inner);
    d_kv_latent = summed("kv_latent", d_kv_latent, a.kv_lora_rank);
    d_own_key = summed("key", d_key, a.qk_rope_head_dim);
    ops.push_back(std::move(sum));
  }
  ops.push_back(operation("layer.attention.key.backward", OpKind::add, t.statistic,
                          {.rows = own, .cols = a.qk_rope_head_dim}, {writes(d_down_key), reads(d_own_key)}));

  // Norms and down-projections. A norm adds to its input's gradient.
  const auto norm = [&](const std::string& id, const Tensor& weight, BufferId dinp, BufferId d_result,
                        BufferId inp, BufferId rstd, std::int64_t rank) {
    ops.push_back(operation(id + ".zero_gradient", OpKind::zero, t.statistic, {}, {writes(dinp)}));
    Operation op =
        operation(id + ".backward", OpKind::rmsnorm_backward, t.statistic, {.rows = own, .hidden = rank},
                  {updates(dinp), updates(weight.gradient), reads(d_result), reads(inp),
                   reads(weight.parameter), reads(rstd)});
    op.scalar = static_cast<float>(m.norm_eps);
    ops.push_back(std::move(op));
  };
  norm("layer.attention.kv_norm", p.kv_norm, add_column_view(b, d_kv_down, ".latent", 0, a.kv_lora_rank),
       d_kv_latent, r.kv_down_latent, r.kv_rstd, a.kv_lora_rank);
  const BufferId dinp = add("inp", own, hidden);
  append(ops, matmul_backward(b, "layer.attention.kv_down", dinp, d_kv_down, rows, p.kv_down,
                              product(own, down_size(m), hidden)));
  BufferId d_of_queries = d_q_inp;
  if (has_q_latent) {
    const BufferId d_q_down = add_kept("q_down", own, a.q_lora_rank);
    norm("layer.attention.q_norm", p.q_norm, d_q_down, d_q_inp, r.q_down, r.q_rstd, a.q_lora_rank);
    d_of_queries = add("inp_of_queries", own, hidden);
    append(ops, matmul_backward(b, "layer.attention.q_down", d_of_queries, d_q_down, rows, p.q_down,
                                product(own, a.q_lora_rank, hidden)));
  }
  ops.push_back(operation("layer.attention.add.backward", OpKind::add, t.statistic,
                          {.rows = own, .cols = hidden}, {updates(dinp), reads(dinp), reads(d_of_queries)}));
  return {std::move(ops), dinp};
}

}  // namespace sim
