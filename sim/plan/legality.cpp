#include "sim/plan/legality.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <sstream>
#include <string_view>

#include "sim/format.h"
#include "sim/plan/layer_division.h"
#include "sim/plan/lora.h"
#include "sim/plan/schedule.h"
#include "sim/plan/strategy_problems.h"
#include "sim/scenario/fields.h"
#include "sim/scenario/layer_list.h"

namespace sim {
namespace {

constexpr std::int64_t kMostTaps = 8;     // taps that the kernels of a state-space layer's convolution hold
constexpr double kMostActions = 1 << 24;  // an action runs a block once for a layer and micro-batch or token
constexpr double kMostBytes = 0x1p60;     // for anything of one kind: 1 EiB

class Checker {
 public:
  explicit Checker(const Scenario& scenario) : s_(scenario) {}

  std::vector<Problem> run() {
    check_model();
    layers_can_be_counted_ = problems_.empty();
    check_hardware();
    check_strategy();
    check_workload();
    check_implementation();
    const double bytes = problems_.empty() ? bytes_of_element() : 0;
    if (problems_.empty()) check_weights(bytes);  // each size is sound, but their products may not be
    if (problems_.empty()) check_extent(bytes);
    return std::move(problems_);
  }
  std::vector<Problem> run_model() {
    check_model();
    if (problems_.empty()) check_weights(bytes_of_element());
    return std::move(problems_);
  }
  std::vector<Problem> run_division_and_work() {
    if (fields_legal<Strategy>()) check_devices();
    fields_legal<Workload>();
    return std::move(problems_);
  }

 private:
  template <class... Parts>
  void add(std::string_view field, const Parts&... message) {
    add_problem(problems_, field, message...);
  }

  // Whether the value lies in [least, most].
  bool in_range(std::string_view field, std::int64_t value, std::int64_t least, std::int64_t most) {
    if (value >= least && value <= most) return true;
    add(field, "must be from ", least, " to ", most, ", but is ", value);
    return false;
  }

  // Whether each field of the part has a value that is legal by itself.
  template <class Part>
  bool fields_legal() {
    bool all = true;
    const Part& part = s_.*kPart<Part>;
    for_each_field<Part>([&](const auto& row) {
      // A workload field that only the other task uses does not matter here.
      const bool other_task = (row.applies == trains || row.applies == generates) && !row.applies(s_);
      if (std::is_same_v<Part, Workload> && other_task) return;
      const std::string problem = problem_of(row, part.*row.member);
      all = all && problem.empty();
      if (!problem.empty()) add(std::string(kPartName<Part>).append(".").append(row.name), problem);
    });
    return all;
  }
  // The plan checks the names of schedules and operations.
  template <class Row, class T>
  static std::string problem_of(const Row& row, const T& value) {
    if constexpr (requires { value.has_value(); }) {
      return value ? problem_of(row, *value) : std::string();
    } else if constexpr (std::is_same_v<T, DType>) {
      if (std::ranges::find(row.words, name(value)) != row.words.end()) return {};
      return "must be " + listed(row.words) + ", but is " + std::string(name(value));
    } else if constexpr (std::is_arithmetic_v<T>) {
      return row.in_range(value) ? std::string() : range_problem(row, value);
    } else {
      return {};
    }
  }
  static std::string shown(double value) {
    std::ostringstream text;
    text << value;
    return text.str();
  }
  template <class Row, class T>
  static std::string range_problem(const Row& row, const T& value) {
    const auto written = [](auto number) {
      if constexpr (std::is_floating_point_v<T>)
        return shown(number);
      else
        return format_count(number);
    };
    const bool open = row.most == std::numeric_limits<typename Row::Bound>::max();
    return "must be " +
           (open ? written(row.least) + " or more"
                 : "from " + written(row.least) + " to " + written(row.most)) +
           ", but is " + written(value);
  }

  // `part` is appended to the field's name.
  void positive(std::string_view field, double value, std::string_view part = {}) {
    if (!(value > 0) || std::isinf(value)) add(std::string(field).append(part), "must be a number above 0");
  }
  void not_negative(std::string_view field, double value) {
    if (!(value >= 0) || std::isinf(value)) add(field, "must be 0 or more");
  }

  // Sizes of parts that the model lacks are bounded, too, because sums over a model's sizes include them.
  void check_model() {
    const Model& m = s_.model;
    in_range("model.hidden_size", m.hidden_size, 1, kLargestWidth);
    in_range("model.intermediate_size", m.intermediate_size, 1, kLargestWidth);
    in_range("model.num_hidden_layers", m.num_hidden_layers, 1, kMostLayers);
    const bool heads = in_range("model.num_attention_heads", m.num_attention_heads, 1, kLargestWidth);
    const bool key_value_heads =
        in_range("model.num_key_value_heads", m.num_key_value_heads, 1, kLargestWidth);
    const bool head_dim = in_range("model.head_dim", m.head_dim, 1, kLargestWidth);
    in_range("model.vocab_size", m.vocab_size, 1, kLargestVocabulary);
    in_range("model.max_position_embeddings", m.max_position_embeddings, 1, kLongestSequence);
    positive("model.norm_eps", m.norm_eps);
    if (m.norm == Norm::rmsnorm && m.norm_parameters != NormParameters::gain_and_bias)
      add("model.norm_parameters", "is ", name(m.norm_parameters),
          ", but norm is rmsnorm: LayerNorm alone leaves parameters out");

    if (heads && key_value_heads && m.num_attention_heads % m.num_key_value_heads != 0)
      add("model.num_key_value_heads", m.num_key_value_heads, " does not divide num_attention_heads, ",
          m.num_attention_heads, ": each key-value head serves the same number of query heads");
    if (heads && head_dim && m.num_attention_heads > kLargestWidth / m.head_dim)
      add("model.head_dim", "times num_attention_heads must be at most ", kLargestWidth);
    check_mixture_of_experts();
    check_latent_attention();
    check_window();
    check_pattern();
    fields_legal<Model>();
    check_norms();
    check_caps();
    if (m.shared_norm && !m.parallel_residual)
      add("model.shared_norm", "needs parallel_residual: attention and feed-forward read one norm's output");
    if (m.position == Position::rope) {
      if (head_dim && !m.has_latent_attention() && m.head_dim % 2 != 0)
        add("model.head_dim", "is ", m.head_dim, ", but rotary embeddings turn pairs: it must be even");
      positive("model.rope_theta", m.rope_theta);
      const bool share = m.partial_rotary_factor >= 0 && m.partial_rotary_factor <= 1;
      if (head_dim && share && m.rotated_size() < 2)
        add("model.partial_rotary_factor", "must leave two elements of a head that positions rotate");
      check_rope_scaling(m.rope_scaling);
    }
  }

  void check_caps() {
    const Model& m = s_.model;
    for (const auto& [field, cap] : {std::pair{"model.attn_logit_softcapping", m.attn_logit_softcapping},
                                     {"model.final_logit_softcapping", m.final_logit_softcapping}})
      if (!(cap >= 0 && cap <= 1e6)) add(field, "must be 0 (none) to 1e6");
    if (m.attn_logit_softcapping > 0 && m.has_latent_attention())
      add("model.attn_logit_softcapping", "must be 0 beside kv_lora_rank: latent attention caps no scores");
    if (m.final_logit_softcapping > 0 && m.num_nextn_predict_layers > 0)
      add("model.final_logit_softcapping", "must be 0 beside num_nextn_predict_layers");
  }

  void check_norms() {
    const Model& m = s_.model;
    positive("model.embedding_multiplier", m.embedding_multiplier);
    if (m.embedding_multiplier != 1 && m.num_nextn_predict_layers > 0)
      add("model.embedding_multiplier", "must be 1 beside num_nextn_predict_layers");
    if (m.norm_gains_from_one && m.norm != Norm::rmsnorm)
      add("model.norm_gains_from_one", "needs norm rmsnorm: it says how files have gains of RMSNorms");
    if (m.norm_placement == NormPlacement::before) return;
    if (m.parallel_residual || m.is_hybrid())
      add("model.norm_placement", "must be before where layers have ",
          m.is_hybrid() ? "a hybrid_override_pattern" : "parallel_residual");
  }

  void check_mixture_of_experts() {
    const Model& m = s_.model;
    const MixtureOfExperts& e = m.moe;
    if (!in_range("model.num_experts", e.num_experts, 0, kMostExperts)) return;
    if (e.num_experts == 0) {
      in_range("model.moe_intermediate_size", e.moe_intermediate_size, 0, kLargestWidth);
      in_range("model.shared_expert_intermediate_size", e.shared_expert_intermediate_size, 0, kLargestWidth);
      return;
    }
    in_range("model.num_experts_per_tok", e.num_experts_per_tok, 1, e.num_experts);
    in_range("model.moe_intermediate_size", e.moe_intermediate_size, 1, kLargestWidth);
    in_range("model.shared_expert_intermediate_size", e.shared_expert_intermediate_size, 0, kLargestWidth);
    if (e.shared_expert_gate && e.shared_expert_intermediate_size == 0)
      add("model.shared_expert_gate", "needs a shared expert: shared_expert_intermediate_size is 0");
    in_range("model.first_k_dense_replace", e.first_k_dense_replace, 0, kMostLayers);
    in_range("model.decoder_sparse_step", e.decoder_sparse_step, 1, kMostLayers);
    if (in_range("model.n_group", e.n_group, 1, e.num_experts)) {
      in_range("model.topk_group", e.topk_group, 1, e.n_group);
      if (e.num_experts % e.n_group != 0)
        add("model.n_group", e.n_group, " does not divide the ", e.num_experts, " experts");
    }
    if (!is_gated(m.activation) && !m.is_hybrid())
      add("model.activation", "is ", name(m.activation),
          ", but experts are gated: it must be swiglu, geglu or clamped_swiglu");
    const Workload& w = s_.workload;
    const auto at_most_experts = [&](const char* field, double value) {
      if (value > static_cast<double>(e.num_experts))
        add(field, "must be at most the number of experts, ", e.num_experts);
    };
    at_most_experts("workload.expert_imbalance", w.expert_imbalance);
    at_most_experts("workload.expert_capacity_factor", w.expert_capacity_factor);
  }

  void check_latent_attention() {
    const Model& m = s_.model;
    const LatentAttention& a = m.latent;
    const bool sizes = in_range("model.q_lora_rank", a.q_lora_rank, 0, kLargestWidth) &
                       in_range("model.kv_lora_rank", a.kv_lora_rank, 0, kLargestWidth);
    if (!sizes) return;
    const bool used = m.has_latent_attention();
    const bool dims = in_range("model.qk_nope_head_dim", a.qk_nope_head_dim, used ? 1 : 0, kLargestWidth) &
                      in_range("model.qk_rope_head_dim", a.qk_rope_head_dim, used ? 2 : 0, kLargestWidth) &
                      in_range("model.v_head_dim", a.v_head_dim, used ? 1 : 0, kLargestWidth);
    if (!dims || !used) return;
    if (m.head_dim != a.qk_nope_head_dim + a.qk_rope_head_dim)
      add("model.head_dim", "must be qk_nope_head_dim and qk_rope_head_dim together, ",
          a.qk_nope_head_dim + a.qk_rope_head_dim, ", but is ", m.head_dim);
    if (a.qk_rope_head_dim % 2 != 0)
      add("model.qk_rope_head_dim", "is ", a.qk_rope_head_dim,
          ", but rotary embeddings turn pairs: it must be even");
    if (m.num_key_value_heads != m.num_attention_heads)
      add("model.num_key_value_heads",
          "must be num_attention_heads: latent attention expands to keys of all heads");
    const auto refuse = [&](bool there, const char* field, const char* value) {
      if (there) add(field, "must be ", value, " beside kv_lora_rank: latent attention has none");
    };
    refuse(m.attention_bias, "model.attention_bias", "false");
    refuse(m.qk_norm != QkNorm::none, "model.qk_norm", "none");
    refuse(m.position != Position::rope, "model.position", "rope");
    if (s_.implementation.attention != AttentionKind::flash)
      add("implementation.attention",
          "must be flash: the model's latent attention is planned in no other way");
    if (s_.strategy.context_parallel > 1)
      add("strategy.context_parallel",
          "must be 1: sequences of a model with latent attention are not divided");
  }

  void check_window() {
    const Model& m = s_.model;
    in_range("model.sliding_window", m.sliding_window, 0, kLongestSequence);
    if (in_range("model.sliding_window_pattern", m.sliding_window_pattern, 0, kMostLayers) &&
        m.sliding_window_pattern > 0 && m.sliding_window == 0)
      add("model.sliding_window_pattern", "says which layers see all tokens, but there is no sliding_window");
    if (m.attention_chunk_size > 0 && m.sliding_window > 0)
      add("model.attention_chunk_size",
          "must be 0 beside sliding_window: a layer attends within a window or within segments");
    if (in_range("model.no_rope_layer_interval", m.no_rope_layer_interval, 0, kMostLayers) &&
        m.no_rope_layer_interval > 0 && (m.position != Position::rope || m.has_latent_attention()))
      add("model.no_rope_layer_interval",
          "says which layers are not rotated: it needs position rope and no latent attention");
    if (m.query_pre_attn_scalar > 0 &&
        (m.position != Position::rope || m.has_latent_attention() || m.no_rope_layer_interval > 0))
      add("model.query_pre_attn_scalar",
          "needs position rope in all layers and no latent attention: rotary tables carry it");
    if (m.query_pre_attn_scalar > 0 && m.query_pre_attn_scalar < 1)
      add("model.query_pre_attn_scalar", "must be 0 or at least 1");
  }

  // A pattern says what each layer is, so no other field may say it.
  void check_pattern() {
    const Model& m = s_.model;
    const std::string& pattern = m.hybrid_override_pattern;
    const char* const field = "model.hybrid_override_pattern";
    check_state_space();
    if (!m.is_hybrid()) {
      if (m.state_space.mamba_num_heads != 0)
        add("model.mamba_num_heads",
            "must be 0 without hybrid_override_pattern: no layer is a state-space layer");
      return;
    }
    if (static_cast<std::int64_t>(pattern.size()) != m.num_hidden_layers)
      add(field, "has ", std::to_string(pattern.size()), " letters, but there are ", m.num_hidden_layers,
          " layers: one letter a layer");
    for (const char letter : pattern)
      if (!layer_sort_from_letter(letter))
        return add(field, "must consist of M, *, - and E, but has \"", letter, "\"");
    if ((m.layers_of(LayerSort::experts) > 0) != m.has_experts())
      add(field, m.has_experts() ? "has no E, but num_experts is above 0" : "has an E, but num_experts is 0");
    const auto refuse = [&](bool there, const char* of, const char* value) {
      if (there) add(of, "must be ", value, " beside hybrid_override_pattern");
    };
    refuse(m.has_latent_attention(), "model.kv_lora_rank", "0");
    refuse(m.parallel_residual, "model.parallel_residual", "false");
    refuse(m.sliding_window > 0, "model.sliding_window", "0");
    refuse(m.attention_chunk_size > 0, "model.attention_chunk_size", "0");
    refuse(m.no_rope_layer_interval > 0, "model.no_rope_layer_interval", "0");
    refuse(m.num_nextn_predict_layers > 0, "model.num_nextn_predict_layers", "0");
    refuse(m.moe.first_k_dense_replace > 0, "model.first_k_dense_replace", "0");
    refuse(m.moe.decoder_sparse_step > 1, "model.decoder_sparse_step", "1");
  }

  void check_state_space() {
    const StateSpace& n = s_.model.state_space;
    const bool used = s_.model.layers_of(LayerSort::state_space) > 0;
    const std::int64_t least = used ? 1 : 0;
    const bool sizes = in_range("model.mamba_num_heads", n.mamba_num_heads, least, kLargestWidth) &
                       in_range("model.mamba_head_dim", n.mamba_head_dim, least, kLargestWidth) &
                       in_range("model.ssm_state_size", n.ssm_state_size, least, kLargestWidth) &
                       in_range("model.n_groups", n.n_groups, least, kLargestWidth) &
                       in_range("model.conv_kernel", n.conv_kernel, least, kMostTaps) &
                       in_range("model.chunk_size", n.chunk_size, least, kLargestWidth);
    if (!sizes) return;
    const auto too_many = [](std::int64_t a, std::int64_t b) { return b > 0 && a > kLargestWidth / b; };
    if (too_many(n.mamba_num_heads, n.mamba_head_dim) || too_many(n.n_groups, n.ssm_state_size))
      add("model.mamba_head_dim",
          "times mamba_num_heads, and n_groups times ssm_state_size, must be at most ", kLargestWidth);
    if (!used) return;
    if (n.mamba_num_heads % n.n_groups != 0)
      add("model.n_groups", n.n_groups, " does not divide mamba_num_heads, ", n.mamba_num_heads);
    const std::int64_t t = s_.strategy.tensor_parallel;
    if (t > 1 && n.n_groups % t != 0)
      add("strategy.tensor_parallel", "is ", t, ", which does not divide the ", n.n_groups,
          " groups of the state-space heads (n_groups)");
    if (s_.implementation.serving)
      add("implementation.serving",
          "says how an engine serves keys and values; of states of state-space layers no engine is known "
          "here: choose an "
          "implementation without it, ridgepoint or ideal");
    if (s_.strategy.context_parallel > 1)
      add("strategy.context_parallel",
          "must be 1: a state passes through the whole sequence, which no plan divides for state-space "
          "layers");
  }

  void check_rope_scaling(const RopeScaling& r) {
    if (r.kind == RopeScaling::Kind::none) return;
    if (!(r.factor >= 1) || std::isinf(r.factor)) add("model.rope_scaling.factor", "must be 1 or more");
    if (r.kind == RopeScaling::Kind::yarn) {
      positive("model.rope_scaling.beta_slow", r.beta_slow);
      positive("model.rope_scaling.beta_fast", r.beta_fast);
      if (!(r.beta_fast > r.beta_slow)) add("model.rope_scaling.beta_fast", "must be above beta_slow");
      not_negative("model.rope_scaling.attention_factor", r.attention_factor);
      in_range("model.rope_scaling.original_max_position_embeddings", r.original_max_position_embeddings, 1,
               kLongestSequence);
    }
    if (r.kind != RopeScaling::Kind::llama3) return;
    positive("model.rope_scaling.low_freq_factor", r.low_freq_factor);
    positive("model.rope_scaling.high_freq_factor", r.high_freq_factor);
    if (!(r.high_freq_factor > r.low_freq_factor))
      add("model.rope_scaling.high_freq_factor", "must be above low_freq_factor");
    in_range("model.rope_scaling.original_max_position_embeddings", r.original_max_position_embeddings, 1,
             kLongestSequence);
  }

  void check_hardware() {
    const Hardware& h = s_.hardware;
    if (h.peak.empty()) add("hardware.peak", "must be given for at least one type");
    for (const auto& [dtype, rate] : h.peak) positive("hardware.peak.", rate.value, name(dtype));
    if (h.memory.value <= 0) add("hardware.memory", "must be more than 0 bytes");
    positive("hardware.memory_bandwidth", h.memory_bandwidth.value);
    not_negative("hardware.launch", h.launch.value);
    fields_legal<Hardware>();
    positive("hardware.sustained_clock", h.sustained_clock);
    not_negative("hardware.network_step", h.network_step.value);
    not_negative("hardware.node_link", h.node_link.value);
    not_negative("hardware.network_link", h.network_link.value);
    not_negative("hardware.node_latency", h.node_latency.value);
    not_negative("hardware.network_latency", h.network_latency.value);
    if (h.last_level_cache.value < 0) add("hardware.last_level_cache", "must be 0 bytes or more");
  }

  void check_strategy() {
    const Strategy& s = s_.strategy;
    if (fields_legal<Strategy>()) {
      const double devices = check_devices();
      check_tensor_parallel();
      check_context_parallel();
      check_expert_parallel();
      check_pipeline();
      check_links(devices);
      if (devices <= static_cast<double>(kMostDevices))
        for (Problem& problem : strategy_problems(s_)) problems_.push_back(std::move(problem));
    }
    if (s.zero_stage > 0 && s.data_parallel == 1 && s.context_parallel == 1)
      add("strategy.zero_stage", "is ", std::to_string(s.zero_stage),
          ", which divides states over data-parallel devices: it needs data_parallel above 1");
    if (s_.workload.task == Task::generate) check_generating_strategy();
  }

  // Returns the number of devices.
  double check_devices() {
    const Strategy& s = s_.strategy;
    const double devices =
        static_cast<double>(s.data_parallel) * s.tensor_parallel * s.pipeline_parallel * s.context_parallel;
    if (devices > static_cast<double>(kMostDevices))
      add("strategy.data_parallel",
          "times tensor_parallel, pipeline_parallel and context_parallel makes more than ", kMostDevices,
          " devices");
    return devices;
  }

  void check_tensor_parallel() {
    const Strategy& s = s_.strategy;
    const Model& m = s_.model;
    const std::int64_t t = s.tensor_parallel;
    if (s.sequence_parallel && t == 1)
      add("strategy.sequence_parallel",
          "divides norms over tensor-parallel devices: it needs tensor_parallel above 1");
    if (t == 1) return;
    const auto is = [&] { return "is " + format_count(t); };
    const bool attends = m.attention_layers() > 0;
    if (attends && m.num_attention_heads % t != 0)
      add("strategy.tensor_parallel", is(), ", which does not divide the model's ", m.num_attention_heads,
          " attention heads");
    if (attends && m.num_key_value_heads > 0 && m.num_key_value_heads % t != 0 &&
        t % m.num_key_value_heads != 0)
      add("strategy.tensor_parallel", is(), ", which neither divides the model's ", m.num_key_value_heads,
          " key-value heads nor is a multiple of them");
    if (m.intermediate_size % t != 0 && layers_can_be_counted_ && m.dense_layers() > 0)
      add("strategy.tensor_parallel", is(), ", which does not divide the model's intermediate_size, ",
          m.intermediate_size);
    if (m.vocab_size < t)
      add("strategy.tensor_parallel", is(), ", more than the words of the vocabulary, ", m.vocab_size);
    const std::int64_t length = s_.workload.seq_len;
    if (s.sequence_parallel && s_.workload.task == Task::train && length > 0 && length % t != 0)
      add("strategy.sequence_parallel", "divides sequences over tensor_parallel devices, but ", t,
          " does not divide seq_len, ", length);
  }

  void check_context_parallel() {
    const Strategy& s = s_.strategy;
    if (s.context_parallel == 1 || s_.workload.task == Task::generate) return;
    // A rank takes a segment from each end. Each segment has whole rows for every tensor-parallel rank.
    const std::int64_t segments = std::int64_t{2} * s.context_parallel;
    const std::int64_t length = s_.workload.seq_len;
    if (length > 0 && length % segments != 0)
      add("strategy.context_parallel", "cuts sequences into ", segments,
          " equal segments, two a rank, but seq_len is ", length);
    else if (s.sequence_parallel && length > 0 && length / s.context_parallel % s.tensor_parallel != 0)
      add("strategy.sequence_parallel", "divides the ", length / s.context_parallel,
          " tokens of a context-parallel rank over tensor_parallel devices, but ", s.tensor_parallel,
          " does not divide them");
    if (s_.implementation.attention != AttentionKind::flash)
      add("strategy.context_parallel", "needs implementation.attention flash");
  }

  // As in Megatron-LM (core/parallel_state.py), experts are divided over ranks that hold all else alike.
  void check_expert_parallel() {
    const Strategy& s = s_.strategy;
    const Model& m = s_.model;
    const char* const field = "strategy.expert_parallel";
    const auto is = [&] { return "is " + format_count(s.expert_parallel); };
    const int shared = s.expert_tensor_parallel;
    if (shared != 0 && shared != 1 && shared != s.tensor_parallel)
      add("strategy.expert_tensor_parallel", "must be 1 or tensor_parallel, ", s.tensor_parallel,
          " (0 for that), but is ", shared);
    if (!m.has_experts()) {
      if (s.expert_parallel > 1) add(field, is(), ", but the model has no experts: it must be 1");
      return;
    }
    const std::int64_t t = s.tensor_parallel, of_expert = s.devices_of_expert() > 1 ? t : 1;
    if (m.moe.moe_intermediate_size % of_expert != 0)
      add("strategy.tensor_parallel", "is ", t, ", which does not divide the width of an expert, ",
          m.moe.moe_intermediate_size, ": expert_tensor_parallel 1 leaves experts whole");
    if (m.moe.shared_expert_intermediate_size % t != 0)
      add("strategy.tensor_parallel", "is ", t, ", which does not divide the width of the shared expert, ",
          m.moe.shared_expert_intermediate_size);
    if (t > 1 && of_expert == 1 && !s.sequence_parallel)
      add("strategy.expert_tensor_parallel",
          "is 1, with which each tensor-parallel device sends its own rows: it needs sequence_parallel");
    if (s.expert_parallel == 1) return;
    if (m.moe.num_experts % s.expert_parallel != 0)
      add(field, is(), ", which does not divide the model's ", m.moe.num_experts, " experts");
    const std::int64_t ranks = t / of_expert * s.data_parallel * s.context_parallel;
    if (ranks % s.expert_parallel != 0)
      add(field, is(), ", which does not divide the ", ranks,
          " devices over which experts can be: data_parallel times context_parallel",
          t > 1 && of_expert == 1 ? " times tensor_parallel" : "",
          t > 1 && of_expert > 1 && t * ranks % s.expert_parallel == 0
              ? "; with sequence_parallel and expert_tensor_parallel 1 tensor-parallel devices are "
                "more of them"
              : "");
    if (t > 1 && !s.sequence_parallel && s_.workload.task == Task::train)
      add(field, is(),
          ", with which each tensor-parallel device sends its own rows: it needs sequence_parallel");
  }

  void check_pipeline() {
    const Strategy& s = s_.strategy;
    const Workload& w = s_.workload;
    for (const Problem& p : division_problems(s_)) add(p.field, p.message);
    if (w.task == Task::generate) return;
    // Where the batch does not divide, that alone is the problem: the number of micro-batches is not known.
    const bool divides = w.global_batch_size > 0 && w.micro_batch_size > 0 &&
                         w.micro_batch_size <= kMostSequences &&
                         w.global_batch_size % (w.micro_batch_size * s.data_parallel) == 0;
    const std::int64_t micro_batches =
        divides ? w.global_batch_size / (w.micro_batch_size * s.data_parallel) : s.pipeline_parallel;
    for (const Problem& p :
         schedule_problems(s.schedule, s.pipeline_parallel, s.virtual_pipeline, micro_batches))
      add("strategy." + p.field, p.message);
  }

  void check_links(double devices) {
    const Hardware& h = s_.hardware;
    if (devices == 1 || h.network_link.value > 0) return;
    if (devices > h.devices_per_node)
      add("hardware.network_link", "must be above 0: ", static_cast<std::int64_t>(devices),
          " devices are more than the ", std::to_string(h.devices_per_node), " of a node");
    else if (h.node_link.value <= 0)
      add("hardware.node_link", "must be above 0: several devices exchange what they compute");
  }

  void check_generating_strategy() {
    const Strategy& s = s_.strategy;
    const auto only_training = [this](const char* field, bool used) {
      if (used)
        add(field,
            "divides training; generation is divided by tensor_parallel and pipeline_parallel, experts also "
            "by expert_parallel");
    };
    // Ranks have copies of all but the experts, each rank with sequences of its own.
    only_training("strategy.data_parallel", s.data_parallel > 1 && s.expert_parallel == 1);
    only_training("strategy.context_parallel", s.context_parallel > 1);
    only_training("strategy.virtual_pipeline", s.virtual_pipeline > 1);
    only_training("strategy.sequence_parallel", s.sequence_parallel && s.tensor_parallel > 1);
  }

  void check_workload() {
    const Workload& w = s_.workload;
    if (!fields_legal<Workload>()) return;
    check_arithmetic(w);
    if (w.task == Task::train) {
      check_training(w);
    } else {
      check_generation(w);
    }
  }

  // A type that the chip has no arithmetic for is refused: no other type stands in for it.
  void check_arithmetic(const Workload& w) {
    const Hardware& h = s_.hardware;
    if (h.peak.empty() || h.has_peak_for(w.dtype)) return;
    const auto& types = kComputeTypes;
    std::vector<std::string_view> has;
    std::ranges::copy_if(types, std::back_inserter(has), [&](std::string_view type) {
      return h.has_peak_for(from_name<DType>(type).value_or(w.dtype));
    });
    const std::string type(name(w.dtype));
    add("workload.dtype", "is ", type, ", but hardware ", h.name, " has no ", type,
        " arithmetic: it must be ", listed(has));
  }

  void check_training(const Workload& w) {
    check_positions("workload.seq_len", w.seq_len);
    for (const Problem& p : lora_problems(s_)) add(p.field, p.message);
    const std::int64_t replicas = s_.strategy.data_parallel;
    if (replicas >= 1 && w.global_batch_size % (w.micro_batch_size * replicas) != 0)
      add("workload.global_batch_size", "is ", w.global_batch_size,
          ", which is no multiple of micro_batch_size times data_parallel, ", w.micro_batch_size * replicas);
    check_noise(w);
  }

  void check_noise(const Workload& w) {
    const char* const field = "workload.measure_noise";
    if (!w.measure_noise) return;
    const Strategy& s = s_.strategy;
    if (std::max({s.data_parallel, s.tensor_parallel, s.pipeline_parallel, s.context_parallel}) > 1)
      add(field,
          "compares the gradients of one device's micro-batches, but the strategy has several devices");
    else if (w.global_batch_size < 2 * w.micro_batch_size)
      add(field,
          "compares a micro-batch's gradient with the step's: global_batch_size must be at least twice "
          "micro_batch_size, ",
          w.micro_batch_size, ", but is ", w.global_batch_size);
  }

  void check_generation(const Workload& w) {
    check_positions("workload.max_new_tokens", w.prompt_length + w.max_new_tokens);
    check_multiplied_type("workload.weights_dtype", w.weights_dtype);
    check_multiplied_type("workload.expert_weights_dtype", w.expert_weights_dtype);
    for (const LayerProduct product : kLayerProducts)
      check_multiplied_type("workload." + std::string(name(product)) + "_dtype", w.*own_type(product));
    check_mixed_layers(w);
    check_kv_block(w);
  }

  void check_mixed_layers(const Workload& w) {
    const auto layers = layers_listed(w.mixed_layers);
    if (!layers)
      add("workload.mixed_layers", "is \"", w.mixed_layers,
          "\", but must be layers in ascending order, by commas, as 0-3,7");
    else if (!layers->empty() && layers->back() >= s_.model.num_hidden_layers)
      add("workload.mixed_layers", "names layer ", layers->back(), ", but the model's last one is ",
          s_.model.num_hidden_layers - 1);
  }

  void check_kv_block(const Workload& w) {
    if (w.kv_block == 0) return;
    if (!w.kv_cache)
      add("workload.kv_block", "divides the KV cache into blocks: it needs kv_cache");
    else if (s_.implementation.serving)
      add("workload.kv_block",
          "must be 0: an inference engine has blocks of its own, implementation.serving.kv_block");
  }

  void check_multiplied_type(std::string_view field, const std::optional<DType>& type) {
    if (type == DType::fp8 && !s_.hardware.peak.empty() && !s_.hardware.has_peak_for(DType::fp8))
      add(field, "is fp8, which ", s_.hardware.name, " cannot multiply");
  }

  // RoPE has an angle for any position, but a learned embedding has only so many rows.
  void check_positions(std::string_view field, std::int64_t length) {
    const Model& m = s_.model;
    if (m.position != Position::learned || length <= m.max_position_embeddings) return;
    add(field, "makes sequences of ", length, " tokens, but the model has learned positions for ",
        m.max_position_embeddings);
  }

  void check_implementation() {
    const Implementation& i = s_.implementation;
    if (!(i.host.uncertainty >= 1)) add("implementation.host.uncertainty", "must be 1 or more");
    if (fields_legal<Implementation>()) check_head_chunks();
  }

  void check_head_chunks() {
    const Implementation& i = s_.implementation;
    const Workload& w = s_.workload;
    const char* const field = "implementation.head_chunks";
    if (i.head_chunks == 1) return;
    const auto is_of_head = [](const std::string& operation) { return operation.starts_with("head."); };
    for (const ExtraTensor& t : i.memory.tensors)
      if (is_of_head(t.from) || is_of_head(t.to))
        return add(field, "must be 1: ", i.name, " keeps ", t.name, ", of all rows, beside the logits");
    if (w.task != Task::train || s_.strategy.context_parallel < 1) return;
    const bool sound = w.micro_batch_size > 0 && w.micro_batch_size <= kMostSequences && w.seq_len > 0 &&
                       w.seq_len <= kLongestSequence;
    const std::int64_t rows = sound ? w.micro_batch_size * (w.seq_len / s_.strategy.context_parallel) : 0;
    if (rows % i.head_chunks != 0)
      add(field, "is ", i.head_chunks, ", which does not divide the ", rows,
          " tokens of a device's micro-batch into equal parts");
  }

  static double d(std::int64_t n) { return static_cast<double>(n); }

  // The total width of what a layer computes for a token: in one expert, and in everything else.
  double width_of_expert() const {
    return 3 * d(s_.model.moe.moe_intermediate_size) + 2 * d(s_.model.hidden_size);
  }
  double width_beside_experts() const {
    const Model& m = s_.model;
    const double latents = d(m.latent.q_lora_rank) + d(m.latent.kv_lora_rank) + d(m.latent.qk_rope_head_dim) +
                           d(m.num_attention_heads) * d(m.latent.v_head_dim);
    const double mixers = 2 * d(m.state_space.projection_size()) + 2 * d(m.state_space.inner_size());
    return 2 * latents + mixers + d(m.qkv_size()) + d(m.query_size()) + 3 * d(m.intermediate_size) +
           3 * d(m.moe.shared_expert_intermediate_size) + 8 * d(m.hidden_size) + d(m.moe.num_experts);
  }

  // Latent attention also has products between latents, not only products with the hidden state.
  double weights() const {
    const Model& m = s_.model;
    const LatentAttention& a = m.latent;
    const double between_latents =
        d(a.q_lora_rank) * d(m.query_size()) +
        d(a.kv_lora_rank) * d(m.num_attention_heads) * (d(a.qk_nope_head_dim) + d(a.v_head_dim));
    const double of_layer =
        d(m.hidden_size) * (width_beside_experts() + d(m.moe.num_experts) * width_of_expert()) +
        (m.has_latent_attention() ? between_latents : 0);
    return d(m.num_hidden_layers) * of_layer +
           d(m.hidden_size) * (2 * d(m.vocab_size) + d(m.max_position_embeddings));
  }

  // An upper bound: twice what any plan holds for an element that it keeps, and more than a kernel moves for
  // one. It is 16 bytes, plus whatever more the software's profile says.
  double bytes_of_element() const {
    const KernelProfile& kernels = s_.implementation.kernels;
    const DataParallelProfile& copies = s_.implementation.data_parallel;
    const MemoryProfile& memory = s_.implementation.memory;
    double passes = std::max({1.0, copies.gather_copy_passes, copies.reduction_copy_passes});
    for (const auto& [kind, times] : kernels.traffic) passes = std::max(passes, times);
    for (const auto& [operation, times] : kernels.side_passes) passes = std::max(passes, times);
    double bytes = 16 * passes + kernels.loss_bytes_per_logit + kernels.accumulation_bytes_per_parameter +
                   kernels.quantisation.input_bytes + kernels.quantisation.weight_bytes +
                   kernels.quantisation.gradient_bytes;
    for (const ExtraTensor& t : memory.tensors)
      bytes += t.hidden + t.query + t.key_value + t.feed_forward + t.vocabulary + t.hidden_of_rows;
    for (const std::optional<SavedActivations>* const form : {&memory.saved, &memory.saved_selective})
      if (const auto& saved = *form)
        bytes += saved->hidden + saved->query + saved->key_value + saved->feed_forward + saved->heads +
                 saved->scores + saved->hidden_of_every_rank;
    return bytes + memory.gradient_copy_bytes + memory.bucket_bytes + memory.reduction_copy_bytes +
           memory.step_fp16_bytes + memory.step_fp32_bytes + memory.whole_in_pipelines;
  }

  // Computes in doubles, which cannot overflow here.
  void check_weights(double bytes_of_element) {
    if (weights() * bytes_of_element > kMostBytes)
      add("model.hidden_size", "makes a model of more than 1 EiB");
  }

  void check_extent(double bytes_of_element) {
    const Model& m = s_.model;
    const Workload& w = s_.workload;
    const bool train = w.task == Task::train;
    const double layers = d(m.num_hidden_layers);
    const double length = train ? d(w.seq_len) : d(w.prompt_length) + d(w.max_new_tokens);
    const double sequences = train ? d(w.micro_batch_size) : d(w.batch_size);
    const double any_choice =
        s_.implementation.expert_parallel.room_for_any_choice ? d(s_.strategy.expert_parallel) : 1;
    const double chosen = m.has_experts() ? d(m.moe.num_experts_per_tok) : 0;
    const double rows = chosen * std::max({any_choice, w.expert_imbalance, w.expert_capacity_factor});
    const double per_layer = width_beside_experts() + rows * width_of_expert();
    double activations = sequences * length * (layers * per_layer + d(m.vocab_size));
    const MemoryProfile& memory = s_.implementation.memory;
    const auto has_scores = [](const std::optional<SavedActivations>& saved) {
      return saved && saved->scores > 0;
    };
    if (s_.implementation.attention == AttentionKind::standard || has_scores(memory.saved) ||
        has_scores(memory.saved_selective))
      activations += sequences * length * length * layers * d(m.num_attention_heads);
    if (activations * bytes_of_element > kMostBytes)
      add(train ? "workload.seq_len" : "workload.prompt_length", "makes activations of more than 1 EiB");
    const double rounds =
        train ? d(w.global_batch_size / w.micro_batch_size) / s_.strategy.data_parallel : d(w.max_new_tokens);
    if (rounds * layers > kMostActions)
      add(train ? "workload.global_batch_size" : "workload.max_new_tokens", "makes more than ",
          static_cast<std::int64_t>(kMostActions), " runs of a layer ",
          train ? "in a step" : "in a generation");
    // Each token reads the weights and the cache. Everything else happens once for each token.
    const double again = train || !w.kv_cache
                             ? weights() + activations
                             : weights() + sequences * length * layers * 2 * d(m.query_size());
    if (problems_.empty() && (rounds * again + activations) * bytes_of_element > kMostBytes)
      add(train ? "workload.global_batch_size" : "workload.max_new_tokens", "moves more than 1 EiB ",
          train ? "in a step" : "in a generation");
  }

  const Scenario& s_;
  std::vector<Problem> problems_;
  bool layers_can_be_counted_ = false;  // one by one, because the model's numbers are in range
};

}  // namespace

std::vector<Problem> validate(const Scenario& scenario) {
  return Checker(scenario).run();
}

std::vector<Problem> validate(const Model& model) {
  Scenario scenario;
  scenario.model = model;
  return Checker(scenario).run_model();
}

std::vector<Problem> problems_of_numbers(const Scenario& scenario) {
  std::vector<Problem> problems = validate(scenario.model);
  std::ranges::move(Checker(scenario).run_division_and_work(), std::back_inserter(problems));
  return problems;
}

std::vector<Problem> remarks(const Scenario& scenario) {
  const Model& m = scenario.model;
  const Workload& w = scenario.workload;
  const bool trains = w.task == Task::train;
  const std::int64_t length = trains ? w.seq_len : w.prompt_length + w.max_new_tokens;
  if (length <= m.max_position_embeddings) return {};
  return {{trains ? "workload.seq_len" : "workload.prompt_length",
           "sequences of " + format_count(length) + " tokens" + (trains ? "" : ", new ones included,") +
               " go beyond the " + format_count(m.max_position_embeddings) + " positions that " + m.name +
               " was trained on: time and memory are predicted as if it knew them"}};
}

}  // namespace sim
