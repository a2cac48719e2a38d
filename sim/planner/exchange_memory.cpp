#include "sim/planner/exchange_memory.h"

#include <algorithm>
#include <array>
#include <vector>

#include "sim/plan/pass_steps.h"

namespace sim {
namespace {

// A piece's embedding is unit 0, its head comes after its layers.
bool is_head(const PassStep& s) {
  return s.kind < 0 && s.unit > 0;
}
bool is_embedding(const PassStep& s) {
  return s.kind < 0 && s.unit == 0;
}
double bytes_of(const UnitBytes& u, const PassStep& s) {
  return s.kind >= 0 ? u.layers[static_cast<std::size_t>(s.kind)] : is_head(s) ? u.head : u.embedding;
}

bool gathers(const Exchange& exchange, Pass pass) {
  return exchange.zero_stage == 3 && pass != Pass::backward_weight;
}
bool reduces(const Exchange& exchange, Pass pass) {
  return exchange.zero_stage >= 2 && pass != Pass::forward;
}

// What of an exchange a pass has something of.
Exchange in_pass(const Exchange& exchange, Pass pass, const PieceMemory& memory) {
  Exchange e{.begun = exchange.begun};
  if (!gathers(exchange, pass) && !reduces(exchange, pass)) return e;
  e.zero_stage = exchange.zero_stage;
  e.both_ends = exchange.both_ends;
  if (gathers(exchange, pass)) e.prefetch = std::min(exchange.prefetch, memory.units - 1);
  // Layers' gradients are reduced by the pass that ends them.
  if (pass == Pass::backward || pass == Pass::backward_weight) {
    e.layers = exchange.layers;
    e.expert_layers = exchange.expert_layers;
  }
  return e;
}

// The most at each step, with parameters that are gathered unit by unit, ahead of the pass, and freed one by
// one as a unit reads them for the last time.
std::vector<double> with_gathered(const Exchange& e, Pass pass, const PieceMemory& memory,
                                  const StateMemory& m) {
  const bool forward = pass == Pass::forward;
  const UnitBytes& bytes = forward ? m.gathered_forward : m.gathered_backward;
  // What the head uses of the embedding's is gathered before the one and freed after the other.
  const double shared = e.both_ends && forward ? m.shared_gathered : 0;
  const std::vector<PassStep>& steps = memory.of(pass);
  std::vector<double> of_first{0};  // parameters of no unit, of the first, of the first two, ...
  for (const PassStep& s : steps)
    if (s.is_first_of_unit) of_first.push_back(of_first.back() + bytes_of(bytes, s));
  std::vector<double> most;
  most.reserve(steps.size());
  double freed = 0;
  std::size_t begun = 0;  // units
  for (const PassStep& s : steps) {
    begun += s.is_first_of_unit;
    double at_most = s.most;
    if (!s.recomputes) {
      const double own = bytes_of(bytes, s) + (is_head(s) ? shared : 0) - (is_embedding(s) ? shared : 0);
      freed += own;
      for (const StepChange::WhileReading& r : s.change->reads)
        at_most = std::max(at_most, s.begin + memory.of_sequences(r.most) + r.share * own);
    }
    const std::size_t gathered = begun + static_cast<std::size_t>(e.prefetch);
    most.push_back(at_most + of_first[std::min(gathered, of_first.size() - 1)] - freed);
  }
  return most;
}

// Gradients at each step: whole ones of a micro-batch, from a unit's backward pass until they are reduced,
// alone or with others, and accumulated ones that begin with the pass.
std::vector<double> gradients_in(const Exchange& e, Pass pass, const Scenario& scenario, const Piece& piece,
                                 const PieceMemory& memory, const StateMemory& m) {
  BucketLayers bucket;
  bucket.of(Unit::layer) = e.layers;
  bucket.of(Unit::expert_layer) = e.expert_layers;
  std::vector<UnitStep> units;
  set_pass_steps(scenario, piece, pass, {.layers = true, .ends = true}, bucket, units);
  const std::vector<PassStep>& steps = memory.of(pass);
  const bool whole = reduces(e, pass);
  double live = 0;
  if (whole && pass == Pass::backward_weight)
    for (const Piece::Run& r : piece.runs) live += m.whole_gradients.layers[r.kind] * r.layers;
  std::vector<double> waiting;  // to be reduced, of each unit
  const auto reduce = [&](std::int32_t first) {
    for (std::int32_t i = 0; i < first; ++i) live -= waiting[static_cast<std::size_t>(i)];
    waiting.erase(waiting.begin(), waiting.begin() + first);
  };
  std::vector<double> at;
  at.reserve(steps.size());
  for (const UnitStep& u : units) {
    if (u.flushed > 0) reduce(u.flushed);
    for (std::int32_t n = 0; u.flushed == 0 && n < u.count; ++n) {
      if (u.recomputes && steps[at.size()].recomputes) at.push_back(live);
      if (!u.works || at.size() == steps.size()) continue;
      const PassStep& s = steps[at.size()];
      const double own = whole ? bytes_of(m.whole_gradients, s) : 0;
      if (pass != Pass::backward_weight) live += own;
      if (e.begun)
        live += bytes_of(m.accumulators, s) - (e.both_ends && is_embedding(s) ? m.shared_accumulators : 0);
      at.push_back(live);
      if (!u.reduces) continue;
      // What both ends share of the head's is reduced with the embedding's.
      waiting.push_back(own - (e.both_ends && is_head(s) ? m.shared_gradient : 0));
      if (static_cast<std::int32_t>(waiting.size()) == u.bucket) reduce(u.bucket);
    }
  }
  return at;
}

// Several at a time: a search asks it of each exchange.
double most_of_sums(const std::vector<double>& a, const std::vector<double>& b) {
  std::array<double, 4> most{};
  std::size_t i = 0;
  for (; i + most.size() <= a.size(); i += most.size())
    for (std::size_t k = 0; k < most.size(); ++k) most[k] = std::max(most[k], a[i + k] + b[i + k]);
  for (; i < a.size(); ++i) most[0] = std::max(most[0], a[i] + b[i]);
  return *std::max_element(most.begin(), most.end());
}

}  // namespace

double most_with(const Exchange& exchange, Pass pass, const Scenario& scenario, const Piece& piece,
                 const PieceMemory& memory, const StateMemory& states) {
  const Exchange e = in_pass(exchange, pass, memory);
  if (e == Exchange{}) return memory.most[static_cast<std::size_t>(pass)];
  PassExchanges& known = memory.exchanges_in(pass);
  const auto [most, added] = known.most.try_emplace(e);
  if (!added) return most;
  // What is gathered depends on how far ahead it is, gradients on buckets: each is followed through the pass
  // by itself, and the most is that of their sums.
  Exchange gathered = e;
  gathered.layers = gathered.expert_layers = 1;
  gathered.begun = nullptr;
  const auto [activations, is_new] = known.gathered.try_emplace(gathered);
  if (is_new && gathers(e, pass)) activations = with_gathered(e, pass, memory, states);
  if (is_new && !gathers(e, pass))
    for (const PassStep& s : memory.of(pass)) activations.push_back(s.most);
  Exchange reduced = e;
  reduced.prefetch = 0;
  const auto [gradients, not_known] = known.gradients.try_emplace(reduced);
  if (not_known) {
    if (reduces(e, pass) || e.begun)
      gradients = gradients_in(e, pass, scenario, piece, memory, states);
    else
      gradients.resize(activations.size());
  }
  return most = most_of_sums(activations, gradients);
}

double accumulated(const StateMemory& m, const Piece& piece, bool both_ends) {
  double bytes = piece.last ? m.accumulators.head : 0;
  if (piece.first) bytes += m.accumulators.embedding - (both_ends ? m.shared_accumulators : 0);
  for (const Piece::Run& r : piece.runs) bytes += m.accumulators.layers[r.kind] * r.layers;
  return bytes;
}

}  // namespace sim
