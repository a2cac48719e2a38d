#include "sim/planner/exchange_memory.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

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

// The most in steps that read parameters for the last time, above what is there when they begin. Few steps of
// a pass differ.
class MostWhileReading {
 public:
  explicit MostWhileReading(OfSequences of_sequences) : of_sequences_(of_sequences) {}
  // `own`: bytes of the parameters that the step reads.
  double of(const StepChange& change, double own) {
    for (const Read& r : read_)
      if (r.change == &change && r.own == own) return r.most;
    double most = 0;
    for (const StepChange::WhileReading& r : change.reads)
      most = std::max(most, of_sequences_(r.most) + r.share * own);
    read_[next_++ % read_.size()] = {&change, own, most};
    return most;
  }

 private:
  struct Read {
    const StepChange* change = nullptr;
    double own = 0, most = 0;
  };
  OfSequences of_sequences_;
  std::array<Read, 4> read_;  // the last of these
  std::size_t next_ = 0;
};

// `shared`: what the head uses of the embedding's, which is gathered before the one and freed after the
// other.
GatheredPass gathered_pass(const std::vector<PassStep>& steps, const UnitBytes& bytes, double shared,
                           OfSequences of_sequences) {
  GatheredPass pass;
  pass.steps.reserve(steps.size());
  pass.of_first.reserve(steps.size() + 1);
  pass.of_first.push_back(0);
  MostWhileReading reading(of_sequences);
  double let_go = 0;
  for (const PassStep& s : steps) {
    double own = bytes_of(bytes, s);
    if (s.is_first_of_unit) pass.of_first.push_back(pass.of_first.back() + own);
    double while_reading = 0;
    if (!s.recomputes) {
      if (is_head(s)) own += shared;
      if (!is_layer(s) && !is_head(s)) own -= shared;
      let_go += own;
      while_reading = reading.of(*s.change, own);
    }
    pass.steps.push_back({.begin = s.begin,
                          .most = s.most,
                          .reading = while_reading,
                          .let_go = let_go,
                          .units = pass.of_first.size() - 1});
  }
  return pass;
}

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
      if (layers_ == bucket_.of(experts ? Unit::expert_layer : Unit::layer)) flush();
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

// Steps between two others that begin layers of one kind and are no fuller than both ends: what is
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

bool gathers(const Exchange& exchange, Pass pass) {
  return exchange.zero_stage == 3 && pass != Pass::backward_weight;
}
bool reduces(const Exchange& exchange, Pass pass) {
  return exchange.zero_stage >= 2 && pass != Pass::forward;
}

// What of an exchange a pass has something of.
Exchange in_pass(const Exchange& exchange, Pass pass, const PieceMemory& memory) {
  if (!gathers(exchange, pass) && !reduces(exchange, pass)) return {};
  Exchange e = exchange;
  e.prefetch = gathers(e, pass) ? std::min(e.prefetch, memory.units - 1) : 0;
  // Layers' gradients are reduced by the pass that ends them.
  if (pass == Pass::forward || pass == Pass::backward_input) e.bucket = {};
  return e;
}

const GatheredPass& gathered_in(const Exchange& e, Pass pass, const PieceMemory& memory,
                                const StateMemory& m) {
  const bool forward = pass == Pass::forward, shared = e.both_ends && forward;
  GatheredPass& known = memory.exchanges_in(pass).gathered[shared];
  if (known.steps.empty())
    known = gathered_pass(memory.of(pass), forward ? m.gathered_forward : m.gathered_backward,
                          shared ? m.shared_gathered : 0, memory.of_sequences);
  return known;
}

// Whole gradients that are there at each step; until others are asked for.
std::span<const double> gradients_in(const Exchange& e, Pass pass, const Piece& piece,
                                     const PieceMemory& memory, const StateMemory& m) {
  constexpr std::size_t kUsualReductions = 8;
  const std::vector<PassStep>& steps = memory.of(pass);
  PassExchanges& known = memory.exchanges_in(pass);
  Exchange reduction = e;
  reduction.prefetch = 0;
  const auto [first, added] = known.reductions.try_emplace(reduction);
  if (added) {
    first = known.whole_gradients.size();
    double all_layers = 0;
    for (const Piece::Run& r : piece.runs) all_layers += m.whole_gradients.layers[r.kind] * r.layers;
    WholeGradients gradients(m, e.bucket, e.both_ends ? m.shared_gradient : 0,
                             pass == Pass::backward_weight ? all_layers : 0);
    if (first == 0) known.whole_gradients.reserve(kUsualReductions * steps.size());
    for (const PassStep& s : steps) {
      if (pass != Pass::backward_weight && !s.recomputes) gradients.begin(s);
      known.whole_gradients.push_back(gradients.live());
      const bool has_weights = pass != Pass::backward_input || !is_layer(s);
      if (has_weights && !s.recomputes) gradients.reduce(s);
    }
  }
  return std::span(known.whole_gradients).subspan(first, steps.size());
}

bool has_accumulators(const StateMemory& m) {
  const UnitBytes& a = m.accumulators;
  return a.embedding > 0 || a.head > 0 ||
         std::any_of(a.layers.begin(), a.layers.end(), [](double bytes) { return bytes > 0; });
}

PassMost most_of(const Exchange& e, Pass pass, const Piece& piece, const PieceMemory& memory,
                 const StateMemory& m) {
  const bool begins = pass == Pass::backward || pass == Pass::backward_input;
  const bool accumulates = begins && has_accumulators(m);
  if (e.zero_stage < 2 && !accumulates) return {memory.most[static_cast<std::size_t>(pass)], {}};
  const std::vector<PassStep>& steps = memory.of(pass);
  const GatheredPass* gathered = gathers(e, pass) ? &gathered_in(e, pass, memory, m) : nullptr;
  std::span<const double> gradients;
  if (reduces(e, pass)) gradients = gradients_in(e, pass, piece, memory, m);
  const auto bytes_at = [&](std::size_t step) {
    const double most = gathered ? gathered->most_at(step, e.prefetch) : steps[step].most;
    return gradients.empty() ? most : most + gradients[step];
  };
  double bytes = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) bytes = std::max(bytes, bytes_at(i));
  PassMost most{bytes, {}};
  if (!accumulates) return most;
  thread_local std::vector<Begun> begun;  // kept from one pass to the next
  begun.clear();
  Begun from{.from = piece.layers() + 2};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const PassStep& s = steps[i];
    if (!s.recomputes && s.unit < from.from) from = {.from = s.unit, .kind = s.kind};
    begun.push_back({bytes_at(i), from.from, from.kind});
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
  const Exchange e = in_pass(exchange, pass, memory);
  const auto [most, added] = memory.exchanges_in(pass).most.try_emplace(e);
  if (added) most = most_of(e, pass, piece, memory, states);
  return most;
}

}  // namespace sim
