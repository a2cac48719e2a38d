// What is computed again in the backward pass, and which inputs are kept for it.
//
// Operations of a layer fall into groups by their ids, whose words strategy.recompute_operations takes:
//   norm              layer.attention_norm, layer.mlp_norm
//   qkv               layer.attention.qkv with its rotation; latent attention's products and norms
//   attention_core    layer.attention.{flash, standard}: what only its own backward pass
//                     reads is dropped; its output stays, since the projection after it
//                     needs it too
//   attention_output  layer.attention.output with its residual
//   mlp_up            layer.mlp.{up, gate_up}, and those of experts
//   activation        layer.mlp.{gelu, swiglu, ...}, and those of experts
// The last projection has no word: its result is the next layer's input.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sim/scenario/scenario.h"

namespace sim {

// The word of the group that an operation, or the buffer that it writes, belongs to; empty where there is
// none.
std::string_view recompute_word_of(std::string_view id);

// Whether the group is computed again.
bool recomputes(const Strategy& s, std::string_view word);

// How many of a pipeline chunk's `layers` share one kept input: 1 unless recompute is full or sqrt.
std::int32_t recompute_interval(const Strategy& s, std::int32_t layers);

// A layer's place among those that are recomputed from one kept input.
struct RecomputePlace {
  bool first = true;  // its input is kept
  bool last = true;   // the next layer's input is kept, or there is none
  bool operator==(const RecomputePlace&) const = default;
};
RecomputePlace recompute_place(const Strategy& s, std::int32_t layer, std::int32_t first_layer,
                               std::int32_t last_layer);
// Those that the layers of a model have, each once.
std::vector<RecomputePlace> recompute_places(const Scenario& s);

}  // namespace sim
