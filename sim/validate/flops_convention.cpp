#include "sim/validate/flops_convention.h"

#include "sim/validate/table_words.h"

namespace sim {
namespace {

// Chosen by presets/table_words.json; the first one where both of its lists are silent.
enum class Formula {
  parameters_full,    // 6 N + 12 L a d s (PaLM, appendix B)
  parameters_causal,  // 6 N + 6 L a d s
  megatron_model,     // 72 B s L h^2 (1 + s/6h + V/12Lh) (Korthikanti et al. 2022)
  megatron_hardware,  // 96 B s L h^2 (1 + s/6h + V/16Lh) (Narayanan et al. 2021): full recompute counted
};

Formula formula_of(std::string_view convention, std::string_view framework) {
  std::string word = meaning("flops_convention", convention);
  if (word.empty()) word = meaning("flops_of_framework", framework);
  return from_name<Formula>(word).value_or(Formula::parameters_full);
}

}  // namespace

CountedFlops counted_flops(const Scenario& s, std::string_view convention, std::string_view framework) {
  const Model& m = s.model;
  const auto d = [](std::int64_t n) { return static_cast<double>(n); };
  const ParameterCount count = count_parameters(m);
  const double tokens = d(s.workload.global_batch_size) * d(s.workload.seq_len);
  const double layers = d(m.num_hidden_layers), hidden = d(m.hidden_size), length = d(s.workload.seq_len),
               vocab = d(m.vocab_size);
  const double attention = 12 * layers * d(m.query_size()) * length;  // of a token, all pairs
  const Formula formula = formula_of(convention, framework);

  CountedFlops counted;
  double model = 0;
  switch (formula) {
    case Formula::megatron_model:
    case Formula::megatron_hardware:
      model = 72 * layers * hidden * hidden * (1 + length / (6 * hidden) + vocab / (12 * layers * hidden));
      break;
    case Formula::parameters_full:
    case Formula::parameters_causal: {
      // A token passes only its chosen experts. NVIDIA's frameworks leave out the input embedding, which
      // computes nothing (github NVIDIA/dgxc-benchmarking, NVIDIA-NeMo/Megatron-Bridge).
      double parameters = d(count.active);
      const std::string counts = convention.empty() ? meaning("embedding_counts_of_framework", framework)
                                                    : meaning("embedding_counts", convention);
      if (counts == "n" && !m.tie_word_embeddings) parameters -= d(count.embedding);
      model = 6 * parameters + (formula == Formula::parameters_causal ? attention / 2 : attention);
      break;
    }
  }
  double again = 0;
  if (s.strategy.recompute == Recompute::full)
    again = model / 3;
  else if (s.strategy.recompute == Recompute::selective)
    again = attention / 3;
  if (formula == Formula::megatron_hardware) {
    const double hardware =
        96 * layers * hidden * hidden * (1 + length / (6 * hidden) + vocab / (16 * layers * hidden));
    counted.hardware = {hardware * tokens};
  } else {
    counted.hardware = {(model + again) * tokens};
  }
  counted.model = {model * tokens};
  const bool of_fp8 = s.workload.dtype == DType::fp8 && meaning("peak", convention) == "fp8";
  counted.peak = of_fp8 ? DType::fp8 : s.hardware.has_peak_for(DType::bf16) ? DType::bf16 : s.workload.dtype;
  return counted;
}

}  // namespace sim
