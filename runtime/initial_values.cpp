#include "runtime/initial_values.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "kernels/counter_random.h"
#include "kernels/rope.h"

namespace runtime {
namespace {

using kernels::cpu::finalise;
using kernels::cpu::uniform;

constexpr double kStandardDeviation = 0.02;

// FNV-1a.
std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return h;
}

// The buffer may belong to a layer of the model or of multi-token prediction.
bool writes_residual_stream(std::string_view buffer_name) {
  return buffer_name.ends_with("layer.attention.output.weight") ||
         buffer_name.ends_with("layer.mlp.down.weight") ||
         buffer_name.ends_with("layer.state_space.out.weight") ||
         buffer_name.ends_with("layer.experts.down.weight") ||
         buffer_name.ends_with("layer.shared_expert.down.weight");
}

// The bias of each state-space head's time step, so that steps begin between 0.001 and 0.1, evenly in their
// logarithm; the decay's logarithm, of 1 to 16; the skip, 1 (Mamba-2's initial values,
// github.com/state-spaces/mamba, modules/mamba2.py).
void fill_heads(std::uint64_t key, std::span<float> out) {
  const std::size_t heads = out.size() / 3;
  for (std::size_t h = 0; h < heads; ++h) {
    const std::uint64_t bits = finalise(key + h);
    const double step = 0.001 * std::pow(100.0, uniform(bits >> 32));
    out[h] = static_cast<float>(step + std::log(-std::expm1(-step)));  // softplus of it is the step
    out[heads + h] = static_cast<float>(std::log(1 + 15 * uniform(bits & 0xffffffffu)));
    out[2 * heads + h] = 1;
  }
}

}  // namespace

void draw_parameter(const sim::Model& model, std::uint64_t seed, std::string_view buffer_name,
                    std::int32_t layer, std::span<float> out) {
  const std::uint64_t key = finalise(finalise(seed) ^ hash(buffer_name)) + static_cast<std::uint64_t>(layer);
  const auto draw_normal = [&](double deviation) {
    kernels::cpu::fill_normal(out.data(), std::ssize(out), finalise(key + 1), deviation);
  };
  // The second of an adapter's two factors begins at 0, so that the adapter changes nothing at first (Hu et
  // al. 2021).
  if (buffer_name.ends_with(".bias") || buffer_name.ends_with("_adapter_up.weight"))
    std::fill(out.begin(), out.end(), 0.0f);
  else if (buffer_name.ends_with("norm.weight"))
    std::fill(out.begin(), out.end(), 1.0f);
  else if (buffer_name == "layer.state_space.heads")
    fill_heads(key, out);
  else if (buffer_name == "layer.state_space.conv.weight")
    // As torch.nn.Conv1d: there uniform up to 1 / sqrt(taps), here normal with the same deviation.
    draw_normal(1 / std::sqrt(3 * static_cast<double>(model.state_space.conv_kernel)));
  else
    draw_normal(kStandardDeviation * (writes_residual_stream(buffer_name)
                                          ? 1 / std::sqrt(2.0 * static_cast<double>(model.num_hidden_layers))
                                          : 1.0));
}

namespace {

kernels::RopeScaling::Kind kind_of(sim::RopeScaling::Kind kind) {
  using To = kernels::RopeScaling::Kind;
  switch (kind) {
    case sim::RopeScaling::Kind::none:
      return To::none;
    case sim::RopeScaling::Kind::linear:
      return To::linear;
    case sim::RopeScaling::Kind::llama3:
      return To::llama3;
    case sim::RopeScaling::Kind::yarn:
      return To::yarn;
  }
  return To::none;
}

void fill_table(const sim::Model& model, double theta, const kernels::RopeScaling& scaling,
                std::span<float> table) {
  const std::int64_t positions = static_cast<std::int64_t>(table.size()) / model.rope_size();
  kernels::cpu::rope_table(table.data(), theta, scaling, positions, model.rope_size(), model.rotated_size());
  // Kernels divide scores by the root of head_dim. Both queries and keys pass through the table, so each
  // takes the root of the missing factor.
  if (model.query_pre_attn_scalar == 0) return;
  const double factor = std::pow(static_cast<double>(model.head_dim) / model.query_pre_attn_scalar, 0.25);
  for (float& x : table) x = static_cast<float>(x * factor);
}

}  // namespace

void fill_rope_table(const sim::Model& model, std::span<float> table) {
  const sim::RopeScaling& from = model.rope_scaling;
  fill_table(model, model.rope_theta,
             {.kind = kind_of(from.kind),
              .factor = from.factor,
              .low_freq_factor = from.low_freq_factor,
              .high_freq_factor = from.high_freq_factor,
              .original_max_position_embeddings = static_cast<double>(from.original_max_position_embeddings),
              .beta_fast = from.beta_fast,
              .beta_slow = from.beta_slow,
              .truncate = from.truncate,
              .attention_factor = from.attention_factor},
             table);
}

void fill_local_rope_table(const sim::Model& model, std::span<float> table) {
  fill_table(model, model.rope_local_base_freq, {}, table);
}

}  // namespace runtime
