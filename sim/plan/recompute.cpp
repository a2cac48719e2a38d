#include "sim/plan/recompute.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/plan/layer_division.h"

namespace sim {
namespace {

struct PrefixWord {
  std::string_view prefix, word;
};
// The first prefix that fits counts. "layer.attention.out" is the core's output, "layer.attention.output" the
// projection.
constexpr std::array<PrefixWord, 33> kPrefixes{{
    {"layer.attention_norm", "norm"},
    {"layer.mlp_norm", "norm"},
    {"layer.attention.qkv", "qkv"},
    {"layer.attention.qk_", "qkv"},
    {"layer.attention.rope", "qkv"},
    {"layer.attention.flash", "attention_core"},
    {"layer.attention.standard", "attention_core"},
    {"layer.attention.kv.", "attention_core"},
    {"layer.attention.ring", "attention_core"},
    {"layer.attention.q", "qkv"},  // latent attention's products and norms
    {"layer.attention.kv", "qkv"},
    {"layer.attention.latents", "qkv"},
    {"layer.attention.log_sum_exp", "attention_core"},
    {"layer.attention.probabilities", "attention_core"},
    {"layer.attention.dropout_mask", "attention_core"},
    {"layer.attention.dropped_probabilities", "attention_core"},
    {"layer.attention.output", "attention_output"},
    {"residual_mid", "attention_output"},
    {"layer.mlp.up", "mlp_up"},
    {"layer.mlp.gate_up", "mlp_up"},
    {"layer.experts.gate_up.all_gather", ""},  // what it brings is kept
    {"layer.experts.gate_up", "mlp_up"},
    {"layer.shared_expert.gate_up", "mlp_up"},
    {"layer.mlp.gelu", "activation"},
    {"layer.mlp.swiglu", "activation"},
    {"layer.mlp.geglu", "activation"},
    {"layer.mlp.relu", "activation"},
    {"layer.mlp.squared_relu", "activation"},
    {"layer.mlp.clamped_swiglu", "activation"},
    {"layer.experts.weigh", "activation"},
    {"layer.experts.activation", "activation"},
    {"layer.shared_expert.activation", "activation"},
    {"layer.mlp.activation", "activation"},
}};

}  // namespace

std::string_view recompute_word_of(std::string_view id) {
  const auto fits =
      std::ranges::find_if(kPrefixes, [&](const PrefixWord& p) { return id.starts_with(p.prefix); });
  return fits == kPrefixes.end() ? std::string_view{} : fits->word;
}

bool recomputes(const Strategy& s, std::string_view word) {
  switch (s.recompute) {
    case Recompute::none:
      return false;
    case Recompute::selective:
      return word == "attention_core";
    case Recompute::full:
    case Recompute::sqrt:
      return true;
    case Recompute::operations:
      return std::ranges::find(s.recompute_operations, word) != s.recompute_operations.end();
  }
  return false;
}

std::int32_t recompute_interval(const Strategy& s, std::int32_t layers) {
  if (s.recompute == Recompute::full) return s.recompute_interval;
  if (s.recompute == Recompute::sqrt)
    return std::max(1, static_cast<std::int32_t>(std::lround(std::sqrt(static_cast<double>(layers)))));
  return 1;
}

RecomputePlace recompute_place(const Strategy& s, std::int32_t layer, std::int32_t first_layer,
                               std::int32_t last_layer) {
  const std::int32_t interval = recompute_interval(s, last_layer - first_layer);
  const std::int32_t place = (layer - first_layer) % interval;
  return {place == 0, place == interval - 1 || layer == last_layer - 1};
}

std::vector<RecomputePlace> recompute_places(const Scenario& s) {
  std::vector<RecomputePlace> places;
  const std::int32_t pieces = pieces_of(s.strategy);
  for (std::int32_t piece = 0; piece < pieces; ++piece) {
    const LayerRange range = layers_of(s, piece);
    for (std::int32_t l = range.first; l < range.last; ++l) {
      const RecomputePlace place = recompute_place(s.strategy, l, range.first, range.last);
      if (std::ranges::find(places, place) == places.end()) places.push_back(place);
    }
  }
  return places;
}

}  // namespace sim
