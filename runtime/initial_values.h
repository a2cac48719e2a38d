// What a fresh run starts from: weights drawn at random, and the tables that the plan reads as inputs.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "sim/scenario/model.h"

namespace runtime {

// GPT-2's initialisation, which Llama-style training code follows too (Radford et al. 2019, section 2.3;
// nanoGPT's _init_weights): matrices normal with standard deviation 0.02, projections into the residual
// stream 0.02 / sqrt(2 num_hidden_layers); norm weights 1; biases 0. Every value is a function of (seed,
// buffer_name, layer, its index) alone: neither threads nor the order of calls matter.
void draw_parameter(const sim::Model& model, std::uint64_t seed, std::string_view buffer_name,
                    std::int32_t layer, std::span<float> out);

// The plan's input.rope_table, fp32 (positions, head_dim).
void fill_rope_table(const sim::Model& model, std::span<float> table);
// Its input.local_rope_table: rope_local_base_freq, unscaled.
void fill_local_rope_table(const sim::Model& model, std::span<float> table);

}  // namespace runtime
