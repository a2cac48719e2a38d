// A GGUF file's codes: the types of a workload that hold them, and the codes themselves.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/formats/gguf.h"
#include "runtime/weights.h"
#include "sim/scenario/model.h"
#include "sim/scenario/workload.h"

namespace runtime {

// A weight as a file codes it, row-major. A value is scale * code + minimum, with code < 2^bits. There is one
// scale and one minimum for each `group` columns of a row. Where both are whole numbers times a block's own
// scale and minimum, these are there for each 256 columns; elsewhere they are empty.
struct CodedWeight {
  int bits = 0;
  std::int64_t group = 0;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales, minima, block_scales, block_minima;
};

// How a file stores the layers' weights, and its embedding and head, in the fields of a workload.
struct StoredTypes {
  std::optional<sim::DType> weights, embedding, head;
  std::optional<sim::DType> experts;  // where only their weights have codes (gpt-oss)
  std::int64_t group = 0;
  bool zeros = true;  // false: each minimum follows from its scale
  // Those of products in `mixed_layers` (Workload) that are not `weights`.
  std::map<sim::LayerProduct, sim::DType> own;
  std::string mixed_layers;

  void set(sim::Workload& workload) const;
};

// The types that hold all of the file's codes in the fewest bits; none where some tensor has no codes.
StoredTypes stored_types(const Gguf& file, WeightNames names, const sim::Model& model);

// Reads a part's rows into their places among all `rows` of `out`, which is empty before the first part.
// False where the tensor has no codes, or codes of another form than those before it; `out` then is
// unspecified.
bool read_codes_of_part(const GgufTensor& tensor, const WeightPart& part, const RowPlace& place,
                        std::int64_t rows, CodedWeight& out);

}  // namespace runtime
