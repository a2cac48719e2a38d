#include "sim/planner/exchange_memory.h"

#include <algorithm>
#include <optional>

namespace sim {
namespace {

// The units of a piece by their numbers in PassStep.
class Units {
 public:
  Units(const Piece& piece, std::size_t kinds) : piece_(piece), layers_(piece.layers()), kinds_(kinds) {
    for (const Piece::Run& r : piece.runs)
      kind_.insert(kind_.end(), static_cast<std::size_t>(r.layers), r.kind);
  }
  bool is_layer(std::int32_t unit) const { return unit > 0 && unit <= layers_; }
  bool is_head(std::int32_t unit) const { return unit == layers_ + 1; }
  std::size_t kind(std::int32_t unit) const { return kind_[static_cast<std::size_t>(unit - 1)]; }
  double of(const UnitBytes& u, std::int32_t unit) const {
    return unit == 0 ? u.embedding : is_layer(unit) ? u.layers[kind(unit)] : u.head;
  }
  // From a unit to the last.
  UnitCounts from(std::int32_t unit) const {
    UnitCounts n{.embedding = piece_.first && unit == 0 ? 1.0 : 0.0,
                 .head = piece_.last ? 1.0 : 0.0,
                 .layers = std::vector<double>(kinds_)};
    for (std::int32_t u = std::max(unit, 1); u <= layers_; ++u) n.layers[kind(u)] += 1;
    return n;
  }
  std::int32_t layers() const { return layers_; }

 private:
  const Piece& piece_;
  std::int32_t layers_;
  std::size_t kinds_;
  std::vector<std::size_t> kind_;
};

// Parameters that a pass gathers, and lets go when their unit has used them.
class Gathered {
 public:
  Gathered(const Units& units, const UnitBytes& bytes, std::int32_t ahead, const std::vector<PassStep>& steps,
           double shared)
      : units_(units), bytes_(bytes), ahead_(static_cast<std::size_t>(ahead)), shared_(shared) {
    std::vector<bool> read(static_cast<std::size_t>(steps.empty() ? 0 : largest(steps)) + 1);
    for (const PassStep& s : steps) {
      const auto unit = static_cast<std::size_t>(s.unit);
      is_first_use_.push_back(!read[unit]);
      if (!read[unit]) users_.push_back(s.unit);
      read[unit] = true;
    }
  }
  // Bytes while a step reads them, and after that; steps come in order.
  double during(std::size_t step) {
    if (!is_first_use_[step]) return live_;
    while (gathered_ < users_.size() && gathered_ <= user_ + ahead_) {
      const std::int32_t unit = users_[gathered_++];
      live_ += units_.of(bytes_, unit);
    }
    ++user_;
    return live_;
  }
  void after(const PassStep& step) {
    if (step.recomputes) return;
    live_ -= units_.of(bytes_, step.unit);
    if (step.unit == 0) live_ += shared_;
    if (units_.is_head(step.unit)) live_ -= shared_;
  }
  double live() const { return live_; }

 private:
  static std::int32_t largest(const std::vector<PassStep>& steps) {
    std::int32_t most = 0;
    for (const PassStep& s : steps) most = std::max(most, s.unit);
    return most;
  }
  const Units& units_;
  const UnitBytes& bytes_;
  std::size_t ahead_, gathered_ = 0, user_ = 0;
  double shared_, live_ = 0;
  std::vector<bool> is_first_use_;   // of its unit's parameters, by step
  std::vector<std::int32_t> users_;  // units in the order of their first use
};

// Whole gradients of a micro-batch, from a unit's backward pass until they are reduced, alone or with others.
class WholeGradients {
 public:
  WholeGradients(const Units& units, const StateMemory& m, double shared, double live)
      : units_(units), m_(m), shared_(shared), live_(live) {}
  void begin(std::int32_t unit) { live_ += units_.of(m_.whole_gradients, unit); }
  void reduce(std::int32_t unit) {
    const bool is_layer = units_.is_layer(unit);
    const bool experts = is_layer && m_.has_experts[units_.kind(unit)];
    if (layers_ > 0 && (!is_layer || experts != of_experts_)) flush();
    if (is_layer) {
      ++layers_;
      of_experts_ = experts;
      waiting_ += units_.of(m_.whole_gradients, unit);
      if (layers_ == (experts ? m_.bucket_expert_layers : m_.bucket_layers)) flush();
    } else {
      live_ -= units_.of(m_.whole_gradients, unit);
      if (units_.is_head(unit)) live_ += shared_;
    }
  }
  double live() const { return live_; }

 private:
  void flush() {
    live_ -= waiting_;
    waiting_ = 0;
    layers_ = 0;
  }
  const Units& units_;
  const StateMemory& m_;
  double shared_;  // of the head's, what is reduced with the embedding's
  double live_, waiting_ = 0;
  std::int32_t layers_ = 0;
  bool of_experts_ = false;
};

struct Begun {
  double bytes = 0;
  std::int32_t from = 0;  // the gradients of this unit and those after it
};

// Of steps between two others that begin layers of one kind, those that are no fuller than both ends: what is
// begun grows by the layer.
std::vector<Begun> corners(const std::vector<Begun>& steps, const Units& units) {
  std::vector<Begun> kept;
  const auto kind = [&](std::int32_t unit) {
    return units.is_layer(unit) ? static_cast<std::int64_t>(units.kind(unit)) : -1;
  };
  const auto below = [&](const Begun& a, const Begun& b, const Begun& c) {
    if (kind(a.from) < 0 || kind(a.from) != kind(b.from) || kind(b.from) != kind(c.from)) return false;
    const double from_a = a.from - b.from, all = a.from - c.from;
    if (all == 0) return b.bytes <= std::max(a.bytes, c.bytes);
    return b.bytes <= a.bytes + (c.bytes - a.bytes) * from_a / all;
  };
  for (const Begun& s : steps) {
    while (kept.size() >= 2 && below(kept[kept.size() - 2], kept.back(), s)) kept.pop_back();
    kept.push_back(s);
  }
  return kept;
}

PassMost most_of(Pass pass, const std::vector<PassStep>& steps, const Units& units, const Exchange& exchange,
                 const StateMemory& m) {
  const bool whole = exchange.zero_stage >= 2;
  const bool forward = pass == Pass::forward;
  const bool reads_parameters = exchange.zero_stage == 3 && pass != Pass::backward_weight;
  const bool begins = pass == Pass::backward || pass == Pass::backward_input;
  const bool accumulates = begins && (m.accumulators.embedding > 0 || m.accumulators.head > 0 ||
                                      std::any_of(m.accumulators.layers.begin(), m.accumulators.layers.end(),
                                                  [](double bytes) { return bytes > 0; }));
  PassMost most;
  if (!whole && !accumulates) {
    for (const PassStep& s : steps) most.bytes = std::max(most.bytes, s.most);
    return most;
  }
  std::optional<Gathered> gathered;
  if (reads_parameters)
    gathered.emplace(units, forward ? m.gathered_forward : m.gathered_backward, exchange.prefetch, steps,
                     exchange.both_ends && forward ? m.shared_gathered : 0);
  double all_layers = 0;
  for (std::int32_t l = 1; l <= units.layers(); ++l) all_layers += units.of(m.whole_gradients, l);
  WholeGradients gradients(units, m, exchange.both_ends ? m.shared_gradient : 0,
                           pass == Pass::backward_weight ? all_layers : 0);
  std::vector<Begun> begun;
  std::int32_t from = units.layers() + 2;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const PassStep& s = steps[i];
    double bytes = s.most;
    if (gathered) {
      const double reading = s.reading + gathered->during(i);
      gathered->after(s);
      bytes = std::max(bytes + gathered->live(), reading);
    }
    const bool makes_gradients = begins && !s.recomputes;
    if (makes_gradients) from = std::min(from, s.unit);
    if (whole && makes_gradients) gradients.begin(s.unit);
    if (whole && !forward) bytes += gradients.live();
    most.bytes = std::max(most.bytes, bytes);
    if (accumulates) begun.push_back({bytes, from});
    const bool has_weights =
        pass == Pass::backward_weight || pass == Pass::backward || !units.is_layer(s.unit);
    if (whole && has_weights && !forward && !s.recomputes) gradients.reduce(s.unit);
  }
  for (const Begun& b : corners(begun, units)) most.steps.push_back({b.bytes, units.from(b.from)});
  return most;
}

}  // namespace

const std::array<PassMost, 4>& passes_with(const Exchange& exchange, const Piece& piece,
                                           const PieceMemory& memory, const StateMemory& states) {
  auto& known = memory.with_exchanges;
  const auto same =
      std::find_if(known.begin(), known.end(), [&](const auto& k) { return k.first == exchange; });
  if (same != known.end()) return same->second;
  const Units units(piece, states.parameters.layers.size());
  auto& passes = known.emplace_back(exchange, std::array<PassMost, 4>{}).second;
  for (const Pass pass : {Pass::forward, Pass::backward, Pass::backward_input, Pass::backward_weight})
    passes[static_cast<std::size_t>(pass)] = most_of(pass, memory.of(pass), units, exchange, states);
  return passes;
}

}  // namespace sim
