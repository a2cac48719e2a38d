#include "runtime/stored_codes.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <span>
#include <utility>

#include "sim/plan/parameters.h"
#include "sim/scenario/layer_list.h"

namespace runtime {
namespace {

constexpr std::int64_t kCodedGroup = 32;  // columns that share a scale, in types without groups of their own

// A tensor of a weight. Where the file has its columns side by side, it is rounded anew.
struct Source {
  const GgufTensor* tensor;
  bool by_columns = false;
};
using Sources = std::vector<Source>;

// The types that a file's codes are held in, from few bits to many.
constexpr sim::DType kHeldTypes[] = {sim::DType::q2_k, sim::DType::q3_k, sim::DType::q4_k, sim::DType::int4,
                                     sim::DType::q5_k, sim::DType::int5, sim::DType::q6_k, sim::DType::int8};

// Whether a type holds the tensor's codes, with scales as they are or rounded to 16 bits. int8 holds all that
// is coded: what has a scale for 16 columns is rounded to 8 bits anew.
bool holds(sim::DType type, const GgufTensor& tensor) {
  const CodeFormat format = code_format(tensor.type);
  if (format.bits == 0 || tensor.shape.back() % kCodedGroup != 0) return false;
  if (type == sim::DType::int8) return true;
  if (format.bits > sim::bits(type)) return false;
  const auto blocks = sim::stored_blocks(type);
  if (!blocks) return format.group == kCodedGroup;
  return format.in_blocks && format.group == blocks->group && format.own_minima == blocks->minima;
}
bool holds(sim::DType type, const Sources& sources) {
  return std::ranges::all_of(sources, [=](const Source& s) {
    return holds(type, *s.tensor) && (!s.by_columns || type == sim::DType::int8);
  });
}

// A product's weights in each layer.
struct StoredProduct {
  sim::LayerProduct product;
  bool can_differ;  // whether they may have a type of their own
  std::vector<Sources> layers;
};

std::vector<std::string> weights_of(const sim::Model& m, sim::LayerProduct product, std::int32_t layer) {
  const bool qkv = product == sim::LayerProduct::qkv, up = product == sim::LayerProduct::up;
  if (qkv && m.has_latent_attention()) return {"layer.attention.q_up", "layer.attention.kv_up"};
  if (qkv || product == sim::LayerProduct::output || !m.is_expert_layer(layer))
    return {std::string(sim::name_of(m, product))};
  std::vector<std::string> all{up ? "layer.experts.gate_up" : "layer.experts.down"};
  if (m.moe.shared_expert_intermediate_size > 0)
    all.push_back(up ? "layer.shared_expert.gate_up" : "layer.shared_expert.down");
  return all;
}

std::vector<StoredProduct> stored_products(const Gguf& file, WeightNames names, const sim::Model& model) {
  std::vector<StoredProduct> products;
  for (const sim::LayerProduct product : sim::kLayerProducts) {
    const bool of_latents = product == sim::LayerProduct::qkv && model.has_latent_attention();
    StoredProduct& stored = products.emplace_back(product, !of_latents);
    for (std::int32_t layer = 0; layer < model.num_hidden_layers; ++layer) {
      Sources& sources = stored.layers.emplace_back();
      for (const std::string& weight : weights_of(model, product, layer))
        for (const WeightPart& part : weight_parts(model, names, weight + ".weight", layer))
          if (const GgufTensor* const tensor = file.find(part.tensor))
            sources.push_back({tensor, part.experts > 0});
    }
  }
  return products;
}

// The products' weights in `common`, but for those that it does not hold. A product that has such weights has
// in all layers that have any the type of fewest bits that holds its weights there.
class Mixture {
 public:
  Mixture(const std::vector<StoredProduct>& products, sim::DType common)
      : products_(products), common_(common) {
    const auto each_misfit = [&](const auto& see) {
      for (const StoredProduct& p : products)
        for (std::size_t layer = 0; layer < p.layers.size(); ++layer)
          if (!holds(common, p.layers[layer])) see(p, layer);
    };
    each_misfit([&](const StoredProduct&, std::size_t layer) { layers_.insert(layer); });
    each_misfit([&](const StoredProduct& p, std::size_t) {
      if (!p.can_differ || own_.contains(p.product)) return;
      const auto holds_own = [&](sim::DType type) {
        return std::ranges::all_of(layers_, [&](std::size_t layer) { return holds(type, p.layers[layer]); });
      };
      const auto type = std::ranges::find_if(kHeldTypes, holds_own);
      if (type != std::end(kHeldTypes)) own_[p.product] = *type;
    });
  }

  // Calls see(sources, type) for each product's weight in each layer.
  void each(const auto& see) const {
    for (const StoredProduct& p : products_)
      for (std::size_t layer = 0; layer < p.layers.size(); ++layer)
        see(p.layers[layer],
            layers_.contains(layer) && own_.contains(p.product) ? own_.at(p.product) : common_);
  }

  bool holds_all() const {
    bool all = true;
    each([&](const Sources& sources, sim::DType type) {
      all = all && !sources.empty() && holds(type, sources);  // who reads a missing one says so
    });
    return all;
  }

  void set(StoredTypes& stored) const {
    stored.weights = common_;
    stored.own = own_;
    if (layers_.size() < products_.front().layers.size())
      stored.mixed_layers = sim::layer_list({layers_.begin(), layers_.end()});
  }

 private:
  const std::vector<StoredProduct>& products_;
  sim::DType common_;
  std::map<sim::LayerProduct, sim::DType> own_;
  std::set<std::size_t> layers_;
};

// Bits of a weight with its share of its group's numbers.
double bits_with_scales(const sim::Workload& w, sim::DType type) {
  const auto blocks = sim::stored_blocks(type);
  const double columns = blocks ? sim::StoredBlocks::kColumns : kCodedGroup;
  const double bytes = blocks ? static_cast<double>(blocks->scale_bytes(sim::StoredBlocks::kColumns))
                       : sim::has_zeros(w, type) ? 4
                                                 : 2;
  return static_cast<double>(sim::bits(type)) + 8 * bytes / columns;
}

// A tensor and the type that holds it.
struct Held {
  const GgufTensor* tensor;
  sim::DType type;
};

// Whether some group has a minimum of its own in a type that may have them.
bool needs_zeros(StoredTypes stored, std::span<const Held> all) {
  stored.zeros = true;
  sim::Workload w;
  stored.set(w);
  return std::ranges::any_of(all, [&](const Held& held) {
    return !sim::stored_blocks(held.type) && sim::has_zeros(w, held.type) &&
           code_format(held.tensor->type).own_minima;
  });
}

double bits_of(const StoredTypes& stored, std::span<const Held> all) {
  sim::Workload w;
  stored.set(w);
  double bits = 0;
  for (const Held& held : all)
    bits += static_cast<double>(held.tensor->element_count()) * bits_with_scales(w, held.type);
  return bits;
}

}  // namespace

void StoredTypes::set(sim::Workload& workload) const {
  workload.weights_dtype = weights;
  workload.embedding_dtype = embedding;
  workload.head_dtype = head;
  workload.expert_weights_dtype = experts;
  workload.weights_group = group;
  workload.weights_zeros = zeros;
  for (const sim::LayerProduct product : sim::kLayerProducts)
    workload.*sim::own_type(product) = own.contains(product) ? std::optional(own.at(product)) : std::nullopt;
  workload.mixed_layers = mixed_layers;
}

StoredTypes stored_types(const Gguf& file, WeightNames names, const sim::Model& model) {
  std::vector<Held> others;
  const auto hold = [&](const GgufTensor* tensor) -> std::optional<sim::DType> {
    const auto type =
        std::ranges::find_if(kHeldTypes, [&](sim::DType t) { return tensor && holds(t, *tensor); });
    if (type == std::end(kHeldTypes)) return std::nullopt;
    others.push_back({tensor, *type});
    return *type;
  };
  StoredTypes stored;
  const GgufTensor* const head = file.find("output.weight");
  stored.head = hold(head);
  // A head without codes would be held as the embedding is.
  if (!head || stored.head) stored.embedding = hold(file.find("token_embd.weight"));
  if (stored.head == stored.embedding) stored.head.reset();
  if (!others.empty()) {
    stored.group = kCodedGroup;
    stored.zeros = needs_zeros(stored, others);
  }

  const std::vector<StoredProduct> products = stored_products(file, names, model);
  StoredTypes best = stored;
  double fewest = std::numeric_limits<double>::infinity();
  for (const sim::DType common : kHeldTypes) {
    const Mixture mixture(products, common);
    if (!mixture.holds_all()) continue;
    std::vector<Held> all = others;
    mixture.each([&](const Sources& sources, sim::DType type) {
      for (const Source& source : sources) all.push_back({source.tensor, type});
    });
    StoredTypes mixed = stored;
    mixture.set(mixed);
    mixed.group = kCodedGroup;
    mixed.zeros = needs_zeros(mixed, all);
    const double bits = bits_of(mixed, all);
    if (std::pair(bits, mixed.own.size()) >= std::pair(fewest, best.own.size())) continue;
    best = std::move(mixed);
    fewest = bits;
  }
  if (best.weights || !model.has_experts()) return best;

  Sources of_experts;
  for (const StoredProduct& p : products)
    for (std::int32_t layer = 0; layer < model.num_hidden_layers; ++layer)
      if (model.is_expert_layer(layer) &&
          (p.product == sim::LayerProduct::up || p.product == sim::LayerProduct::down))
        std::ranges::copy(p.layers[static_cast<std::size_t>(layer)], std::back_inserter(of_experts));
  const auto type = std::ranges::find_if(kHeldTypes, [&](sim::DType t) { return holds(t, of_experts); });
  if (type == std::end(kHeldTypes) || of_experts.empty()) return best;
  std::vector<Held> all = others;
  for (const Source& source : of_experts) all.push_back({source.tensor, *type});
  best.experts = *type;
  best.group = kCodedGroup;
  best.zeros = needs_zeros(best, all);
  return best;
}

bool read_codes_of_part(const GgufTensor& tensor, const WeightPart& part, const RowPlace& place,
                        std::int64_t rows, CodedWeight& out) {
  const CodeFormat format = code_format(tensor.type);
  const std::int64_t multiple = std::max(kCodedGroup, ggml_type_info(tensor.type).elements);
  const bool by_columns = part.transposed || part.experts > 0;
  if (format.bits == 0 || by_columns || part.cols == 0 || part.cols % multiple != 0) return false;
  const auto all_rows = static_cast<std::size_t>(rows), cols = static_cast<std::size_t>(part.cols);
  const std::size_t groups = cols / static_cast<std::size_t>(format.group);
  const std::size_t blocks = format.in_blocks ? cols / sim::StoredBlocks::kColumns : 0;
  const bool first_part = out.codes.empty();
  if (!first_part && (out.group != format.group || out.block_scales.empty() == format.in_blocks))
    return false;
  out.bits = std::max(out.bits, format.bits);
  out.group = format.group;
  const auto sized = [&](auto& numbers, std::size_t of_row) {
    numbers.resize(all_rows * of_row);
    return std::span(numbers);
  };
  const GgmlCodes all{sized(out.codes, cols), sized(out.scales, groups), sized(out.minima, groups),
                      sized(out.block_scales, blocks), sized(out.block_minima, blocks)};
  const std::size_t row_bytes = tensor.bytes.size() / static_cast<std::size_t>(part.rows);
  for (std::int64_t row = 0; row < part.rows; ++row) {
    const auto there = static_cast<std::size_t>(part.file_row(row));
    const auto here = static_cast<std::size_t>(place.of(row));
    read_codes(tensor.type, tensor.bytes.subspan(there * row_bytes, row_bytes),
               {all.codes.subspan(here * cols, cols), all.scales.subspan(here * groups, groups),
                all.minima.subspan(here * groups, groups), all.block_scales.subspan(here * blocks, blocks),
                all.block_minima.subspan(here * blocks, blocks)});
  }
  give_back(tensor.bytes);
  return true;
}

}  // namespace runtime
