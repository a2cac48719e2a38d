// Where the plan's parameters lie in weight files that others publish, by Hugging Face's tensor names and
// GGUF's. Modules of multi-token prediction are layers behind the model's last one, as in DeepSeek-V3.
//
// A plan's parameter is a matrix (rows, columns) or a vector. In a file it is one tensor or several, stacked
// by rows (Q, K and V; gate and up); GPT-2's Conv1D stores its matrices transposed, and GGUF's "llama"
// architecture interleaves the two halves of each head's rotary dimensions. Parts that share groups of rows
// (`groups`) lie within each group one after the other: each expert's gate before its up.
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

  // > 0: rows are heads' queries, then keys, then values, in this many groups. The file has them group by
  // group: the group's queries (fused_queries heads), its key, its value (BLOOM, Falcon, GPT-NeoX)
  std::int64_t fused_groups = 0, fused_queries = 0;

  // > 0: in the file, the first `partly_rotated` of a head's `head_rows` rows rotate. In the plan, a pair's
  // rows are half a head apart, and unrotated rows end each half. For the first `rotating_heads` heads.
  std::int64_t partly_rotated = 0, head_rows = 0, rotating_heads = 0;

  // > 0: the part's rows are in this many groups, and the file has (groups, rows of one, columns).
  // Neighbouring parts with as many groups share them.
  std::int64_t groups = 0;

  // > 0: the file has this many experts, each (columns, rows of one); a bias is (experts, rows of one)
  std::int64_t experts = 0;
  bool alternating = false;  // ... with the two halves of an expert's rows in turn: gate, up, gate, ...
  std::int64_t first_row =
      0;             // the file has the part's rows from here on, the first ones last (OPT's positions)
  float offset = 0;  // added to the file's values to give the parameter (Gemma's gains)

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

// GGUF's names are those of gguf_weights.h. Rotary halves may be interleaved.
enum class WeightNames { hugging_face, gguf, gguf_interleaved };

// The parts of the plan's parameter `buffer_name` in decoder layer `layer` (ignored for parameters outside
// layers). Throws std::invalid_argument for a name that no plan of the model has.
std::vector<WeightPart> weight_parts(const sim::Model& model, WeightNames names, std::string_view buffer_name,
                                     std::int32_t layer);

// A trainable adapter (LoRA) of a weight, (rows, cols), under the name that peft gives it within a layer.
// Empty where `buffer_name` names no adapter.
std::optional<WeightPart> adapter_part(std::string_view buffer_name, std::int32_t layer, std::int64_t rows,
                                       std::int64_t cols);

// Which row of the parameter a part's row is.
struct RowPlace {
  std::int64_t first = 0;  // of the part's rows
  std::int64_t share = 0,
               group = 0;  // the part's rows in a group, and all rows in it; 0: there are no groups
  std::int64_t of(std::int64_t row) const {
    return first + (share > 0 ? row / share * group + row % share : row);
  }
};
// Those of a parameter's parts, in order.
std::vector<RowPlace> row_places(std::span<const WeightPart> parts);

// Reads a tensor's values as they lie in the file; throws where it is missing or has not part.file_shape().
using ReadTensor = std::function<void(const WeightPart& part, std::span<float> out)>;

// Fills `out`, the whole parameter.
void assemble(std::span<const WeightPart> parts, const ReadTensor& read, std::span<float> out);

// The reverse for one part: its values in the file's order, from the parameter's rows that belong to it.
std::vector<float> file_order(const WeightPart& part, std::span<const float> rows);

}  // namespace runtime
