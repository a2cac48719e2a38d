// Where the plan's parameters lie in other people's files: Hugging Face's tensor names and GGUF's. Modules of
// multi-token prediction are the layers behind the model's last, as DeepSeek-V3 publishes them.
//
// A plan's parameter is a matrix (rows, columns) or a vector. In a file it is one tensor or several, stacked
// by rows (Q, K and V; gate and up); GPT-2's Conv1D stores its matrices transposed, and GGUF's "llama"
// architecture interleaves the two halves of each head's rotary dimensions.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/scenario/model.h"

namespace runtime {

struct WeightPart {
  std::string tensor;               // its name in the file
  std::int64_t rows = 0, cols = 0;  // of the part in the plan's parameter; a vector has cols 0
  bool transposed = false;          // the file has (cols, rows)
  bool of_channels = false;         // the file has (rows, 1, cols), as torch.nn.Conv1d
  std::int64_t interleaved_heads =
      0;                         // > 0: rows are that many heads whose rotary halves the file interleaves
  std::int64_t rotary_rows = 0;  // of each such head, at its end; 0: all

  // > 0: rows are queries, keys and values of heads in so many groups, which the file has group by group: its
  // queries, its key, its value (BLOOM, Falcon, GPT-NeoX)
  std::int64_t fused_groups = 0, fused_queries = 0;

  // > 0: of each head's `head_rows` rows the first so many rotate in the file. Here a pair lies half a head
  // apart, and what does not rotate behind each half. Holds for the first `rotating_heads`.
  std::int64_t partly_rotated = 0, head_rows = 0, rotating_heads = 0;

  // > 0: the file has so many experts, each (columns, rows of one); a bias (experts, rows of one)
  std::int64_t experts = 0;
  bool alternating = false;  // ... with the two halves of an expert's rows in turn: gate, up, gate, ...
  std::int64_t first_row =
      0;             // the file has the part's rows from here on, the first ones last (OPT's positions)
  float offset = 0;  // what the parameter has beside the file's values (Gemma's gains)

  bool swapped_halves = false;  // the file has the second half of the columns first

  bool lies_otherwise() const {
    return transposed || interleaved_heads > 0 || fused_groups > 0 || swapped_halves || partly_rotated > 0 ||
           experts > 0 || first_row > 0 || offset != 0;
  }
  std::vector<std::int64_t> file_shape() const;
  // Where the file has row `row` of the part, transposed or not.
  std::int64_t file_row(std::int64_t row) const;
  std::int64_t place_among_experts(std::int64_t row, std::int64_t col) const;
  std::int64_t elements() const { return rows * (cols > 0 ? cols : 1); }
};

enum class WeightNames { hugging_face, gguf_llama, gguf };

// The parts of the plan's parameter `buffer_name` of decoder layer `layer` (ignored where the name is not a
// layer's). std::invalid_argument for a name that no plan of the model has.
std::vector<WeightPart> weight_parts(const sim::Model& model, WeightNames names, std::string_view buffer_name,
                                     std::int32_t layer);

// The adapter of a weight that learns beside it (LoRA), (rows, cols), as peft names it within a layer; empty
// where the name is of no adapter.
std::optional<WeightPart> adapter_part(std::string_view buffer_name, std::int32_t layer, std::int64_t rows,
                                       std::int64_t cols);

// Reads a tensor's values as they lie in the file; throws where it is missing or has not part.file_shape().
using ReadTensor = std::function<void(const WeightPart& part, std::span<float> out)>;

// Fills `out`, the whole parameter.
void assemble(std::span<const WeightPart> parts, const ReadTensor& read, std::span<float> out);

// The reverse for one part: its values in the file's order, from the parameter's rows that belong to it.
std::vector<float> file_order(const WeightPart& part, std::span<const float> rows);

}  // namespace runtime
