// The model that a row of a table names or spells out.
#pragma once
#include "sim/scenario/model.h"
#include "sim/validate/row.h"

namespace sim {

// The model from the columns layers, hidden, ffn_hidden, heads, kv_heads, vocab, arch and params_b where they
// give the shape; else the preset that model_name means. Throws CannotPredict.
Model model_of_row(const TableRow& row);

// A model's name in the spelling of presets: "Llama 3(.1) 8B" is "llama-3.1-8b".
std::string preset_spelling(std::string_view model_name);

}  // namespace sim
