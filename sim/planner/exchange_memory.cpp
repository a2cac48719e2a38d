#include "sim/planner/exchange_memory.h"

#include <algorithm>
#include <array>
#include <optional>

namespace sim {
namespace {

// A piece's embedding is unit 0, its head comes after its layers.
bool is_layer(const PassStep& s) {
  return s.kind >= 0;
}
bool is_head(const PassStep& s) {
  return s.kind < 0 && s.unit > 0;
}
double bytes_of(const UnitBytes& u, const PassStep& s) {
  return is_layer(s) ? u.layers[static_cast<std::size_t>(s.kind)] : is_head(s) ? u.head : u.embedding;
}

// Parameters that a pass gathers ahead of each unit, and lets go one by one as the unit reads them for the
// last time.
class Gathered {
 public:
  // Refers to the pass's steps, and to the bytes of units.
  Gathered(const UnitBytes& bytes, std::int32_t ahead, const std::vector<PassStep>& steps,
           OfSequences of_sequences, double shared)
      : bytes_(bytes), steps_(steps), of_sequences_(of_sequences), ahead_(ahead), shared_(shared) {}
  // The most in a step with what is gathered; steps come in order.
  double most_of(const PassStep& step) {
    if (step.is_first_of_unit) gather();
    if (step.recomputes) return step.most + live_;
    double own = bytes_of(bytes_, step);
    if (is_head(step)) own += shared_;
    if (!is_layer(step) && !is_head(step)) own -= shared_;
    live_ -= own;
    return std::max(step.most + live_, step.begin + live_ + most_while_reading(*step.change, own));
  }

 private:
  // Of a step that reads so many bytes of parameters, above what is there when it begins. Few steps of a pass
  // differ.
  double most_while_reading(const StepChange& change, double own) {
    for (const Read& r : read_)
      if (r.change == &change && r.own == own) return r.most;
    double most = 0;
    for (const StepChange::WhileReading& r : change.reads)
      most = std::max(most, of_sequences_(r.most) + r.share * own);
    read_[next_read_++ % read_.size()] = {&change, own, most};
    return most;
  }
  void gather() {
    for (; next_ < steps_.size() && gathered_ <= user_ + ahead_; ++next_) {
      if (!steps_[next_].is_first_of_unit) continue;
      live_ += bytes_of(bytes_, steps_[next_]);
      ++gathered_;
    }
    ++user_;
  }
  const UnitBytes& bytes_;
  const std::vector<PassStep>& steps_;
  OfSequences of_sequences_;
  std::int32_t ahead_, gathered_ = 0, user_ = 0;  // units
  std::size_t next_ = 0;                          // step that may gather
  double shared_, live_ = 0;
  struct Read {
    const StepChange* change = nullptr;
    double own = 0, most = 0;
  };
  std::array<Read, 4> read_;  // the last of these
  std::size_t next_read_ = 0;
};

// Whole gradients of a micro-batch, from a unit's backward pass until they are reduced, alone or with others.
class WholeGradients {
 public:
  WholeGradients(const StateMemory& m, const BucketLayers& bucket, double shared, double live)
      : m_(m), bucket_(bucket), shared_(shared), live_(live) {}
  void begin(const PassStep& unit) { live_ += bytes_of(m_.whole_gradients, unit); }
  void reduce(const PassStep& unit) {
    const bool experts = is_layer(unit) && m_.has_experts[static_cast<std::size_t>(unit.kind)];
    if (layers_ > 0 && (!is_layer(unit) || experts != of_experts_)) flush();
    if (is_layer(unit)) {
      ++layers_;
      of_experts_ = experts;
      waiting_ += bytes_of(m_.whole_gradients, unit);
      if (layers_ == bucket_.of(experts)) flush();
    } else {
      live_ -= bytes_of(m_.whole_gradients, unit);
      if (is_head(unit)) live_ += shared_;
    }
  }
  double live() const { return live_; }

 private:
  void flush() {
    live_ -= waiting_;
    waiting_ = 0;
    layers_ = 0;
  }
  const StateMemory& m_;
  BucketLayers bucket_;
  double shared_;  // of the head's, what is reduced with the embedding's
  double live_, waiting_ = 0;
  std::int32_t layers_ = 0;
  bool of_experts_ = false;
};

struct Begun {
  double bytes = 0;
  std::int32_t from = 0, kind = -1;  // the gradients of this unit and those after it
};

// Of steps between two others that begin layers of one kind, those that are no fuller than both ends: what is
// begun grows by the layer.
void cut_to_corners(std::vector<Begun>& steps) {
  const auto below = [](const Begun& a, const Begun& b, const Begun& c) {
    if (a.kind < 0 || a.kind != b.kind || b.kind != c.kind) return false;
    const double from_a = a.from - b.from, all = a.from - c.from;
    if (all == 0) return b.bytes <= std::max(a.bytes, c.bytes);
    return b.bytes <= a.bytes + (c.bytes - a.bytes) * from_a / all;
  };
  std::size_t kept = 0;
  for (const Begun& s : steps) {
    while (kept >= 2 && below(steps[kept - 2], steps[kept - 1], s)) --kept;
    steps[kept++] = s;
  }
  steps.resize(kept);
}

// From a unit of a piece to the last.
UnitCounts units_from(std::int32_t unit, const Piece& piece, std::size_t kinds) {
  UnitCounts n{.embedding = piece.first && unit == 0 ? 1.0 : 0.0,
               .head = piece.last ? 1.0 : 0.0,
               .layers = std::vector<double>(kinds)};
  std::int32_t first = 1;  // of the run
  for (const Piece::Run& r : piece.runs) {
    n.layers[r.kind] += std::clamp(first + r.layers - unit, 0, r.layers);
    first += r.layers;
  }
  return n;
}

PassMost most_of(Pass pass, const PieceMemory& memory, const Piece& piece, const Exchange& exchange,
                 const StateMemory& m, bool has_accumulators) {
  const bool whole = exchange.zero_stage >= 2;
  const bool forward = pass == Pass::forward;
  const bool reads_parameters = exchange.zero_stage == 3 && pass != Pass::backward_weight;
  const bool begins = pass == Pass::backward || pass == Pass::backward_input;
  const bool accumulates = begins && has_accumulators;
  if (!whole && !accumulates) return {memory.most[static_cast<std::size_t>(pass)], {}};
  const std::vector<PassStep>& steps = memory.of(pass);
  std::optional<Gathered> gathered;
  if (reads_parameters)
    gathered.emplace(forward ? m.gathered_forward : m.gathered_backward, exchange.prefetch, steps,
                     memory.of_sequences, exchange.both_ends && forward ? m.shared_gathered : 0);
  double all_layers = 0;
  for (const Piece::Run& r : piece.runs) all_layers += m.whole_gradients.layers[r.kind] * r.layers;
  WholeGradients gradients(m, exchange.bucket, exchange.both_ends ? m.shared_gradient : 0,
                           pass == Pass::backward_weight ? all_layers : 0);
  PassMost most;
  thread_local std::vector<Begun> begun;  // kept from one pass to the next
  begun.clear();
  Begun from{.from = piece.layers() + 2};
  for (const PassStep& s : steps) {
    double bytes = gathered ? gathered->most_of(s) : s.most;
    const bool makes_gradients = begins && !s.recomputes;
    if (makes_gradients && s.unit < from.from) from = {.from = s.unit, .kind = s.kind};
    if (whole && makes_gradients) gradients.begin(s);
    if (whole && !forward) bytes += gradients.live();
    most.bytes = std::max(most.bytes, bytes);
    if (accumulates) begun.push_back({bytes, from.from, from.kind});
    const bool has_weights = pass == Pass::backward_weight || pass == Pass::backward || !is_layer(s);
    if (whole && has_weights && !forward && !s.recomputes) gradients.reduce(s);
  }
  cut_to_corners(begun);
  most.steps.reserve(begun.size());
  for (const Begun& b : begun)
    most.steps.push_back({b.bytes, units_from(b.from, piece, m.parameters.layers.size())});
  return most;
}

}  // namespace

const PassMost& pass_with(const Exchange& exchange, Pass pass, const Piece& piece, const PieceMemory& memory,
                          const StateMemory& states) {
  Exchange key = exchange;  // but for what this pass has nothing of
  if (pass == Pass::forward || pass == Pass::backward_input) key.bucket = {};
  key.prefetch = pass == Pass::backward_weight ? 0 : std::min(key.prefetch, piece.units() - 1);
  const auto [known, added] = memory.with_exchanges[static_cast<std::size_t>(pass)].try_emplace(key);
  if (added) {
    const UnitBytes& accumulators = states.accumulators;
    const bool accumulates = accumulators.embedding > 0 || accumulators.head > 0 ||
                             std::any_of(accumulators.layers.begin(), accumulators.layers.end(),
                                         [](double bytes) { return bytes > 0; });
    known->second = most_of(pass, memory, piece, exchange, states, accumulates);
  }
  return known->second;
}

}  // namespace sim
