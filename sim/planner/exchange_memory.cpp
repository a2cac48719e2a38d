#include "sim/planner/exchange_memory.h"

#include <algorithm>
#include <vector>

#include "sim/plan/pass_steps.h"

namespace sim {
namespace {

bool gathers(const Exchange& exchange, Pass pass) {
  return exchange.zero_stage == 3 && pass != Pass::backward_weight;
}
const UnitBytes& gathered_in(Pass pass, const StateMemory& m) {
  return pass == Pass::forward ? m.gathered_forward : m.gathered_backward;
}
bool reduces(const Exchange& exchange, Pass pass) {
  return exchange.zero_stage >= 2 && pass != Pass::forward;
}

// The part of an exchange that concerns a pass.
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

// Bytes of a unit: gathered before its step and freed by it, begun with it, reduced after it.
struct OfUnit {
  double gathered = 0, begun = 0, reduced = 0;
};
OfUnit of_unit(const PassStep& s, const Exchange& e, Pass pass, const StateMemory& m) {
  const bool head_of_both = e.both_ends && s.place == kHeadPlace;
  const bool embedding_of_both = e.both_ends && s.place == kEmbeddingPlace;
  OfUnit bytes;
  if (gathers(e, pass)) bytes.gathered = gathered_in(pass, m)[s.place];
  // Parameters that the head shares with the embedding are gathered before the one and freed after the other.
  // Gradients that both share are reduced with the embedding's.
  if (gathers(e, pass) && pass == Pass::forward)
    bytes.gathered += (head_of_both ? m.shared_gathered : 0) - (embedding_of_both ? m.shared_gathered : 0);
  if (reduces(e, pass)) bytes.reduced = m.whole_gradients[s.place] - (head_of_both ? m.shared_gradient : 0);
  if (reduces(e, pass) && pass != Pass::backward_weight) bytes.begun = m.whole_gradients[s.place];
  if (e.begun) bytes.begun += m.accumulators[s.place] - (embedding_of_both ? m.shared_accumulators : 0);
  return bytes;
}

// The most bytes at any step of a pass. They include parameters, gathered unit by unit, ahead of their use,
// and freed one by one as a unit reads them for the last time; a micro-batch's whole gradients, from a unit's
// backward pass until they are reduced, alone or with others; and accumulated gradients that begin with the
// unit's backward pass.
double most_in_steps(const Exchange& e, Pass pass, const Piece& piece, const std::vector<UnitStep>& units,
                     const std::vector<PassStep>& steps, const StateMemory& m) {
  const bool gathers_any = gathers(e, pass);
  thread_local std::vector<double> gathered;  // parameters of no unit, of the first, of the first two, ...
  gathered.assign(1, 0);
  for (const PassStep& s : steps)
    if (gathers_any && s.is_first_of_unit)
      gathered.push_back(gathered.back() + gathered_in(pass, m)[s.place]);
  const double* const of_first = gathered.data();
  const std::size_t last = gathered.size() - 1;
  std::size_t at = 0, ahead = static_cast<std::size_t>(e.prefetch);  // how many units have been gathered
  double most = 0, freed = 0, gradients = 0;
  if (reduces(e, pass) && pass == Pass::backward_weight)
    gradients = bytes_of_layers(m.whole_gradients, piece);
  double waiting = 0, last_waiting = 0;  // gradients to be reduced; the last unit's of them
  std::int32_t units_waiting = 0;
  // Reduces the first units whose gradients wait: all of them, or all but the last.
  const auto reduce = [&](std::int32_t first) {
    const double stays = first == units_waiting ? 0 : last_waiting;
    gradients -= waiting - stays;
    waiting = stays;
    units_waiting -= first;
  };
  const auto take = [&](const PassStep& s, double while_reading) {
    ahead += gathers_any && s.is_first_of_unit ? 1 : 0;
    const double bytes = std::max(s.most, s.begin + while_reading) + of_first[std::min(ahead, last)] - freed;
    most = std::max(most, bytes + gradients);
  };
  for (const UnitStep& u : units) {
    if (u.flushed > 0) {
      reduce(u.flushed);
      continue;
    }
    const StepChange* change = nullptr;
    OfUnit own;
    double while_reading = 0;  // bytes above those at a step's begin
    for (std::int32_t n = 0; n < u.count && at < steps.size(); ++n) {
      if (u.recomputes && steps[at].recomputes) take(steps[at++], 0);
      if (!u.works || at == steps.size()) continue;
      const PassStep& s = steps[at++];
      if (s.change != change) {  // few layers differ from the one before
        change = s.change;
        own = of_unit(s, e, pass, m);
        while_reading = 0;
        for (const StepChange::WhileReading& r : change->reads)
          if (gathers_any) while_reading = std::max(while_reading, r.most + r.share * own.gathered);
      }
      freed += own.gathered;
      gradients += own.begun;
      take(s, while_reading);
      if (!u.reduces) continue;
      last_waiting = own.reduced;
      waiting += last_waiting;
      if (++units_waiting == u.bucket) reduce(u.bucket);
    }
  }
  return most;
}

}  // namespace

double most_with(const Exchange& exchange, Pass pass, const Scenario& scenario, const Piece& piece,
                 const PieceMemory& memory, const StateMemory& states) {
  const Exchange e = in_pass(exchange, pass, memory);
  if (e == Exchange{}) return memory.most[pass];
  const auto [most, added] = memory.with_exchanges[pass].try_emplace(e);
  if (!added) return most;
  BucketLayers bucket;
  bucket[Unit::layer] = e.layers;
  bucket[Unit::expert_layer] = e.expert_layers;
  const auto [units, is_new] = memory.units_with[pass].try_emplace(bucket);
  if (is_new) set_pass_steps(scenario, piece, pass, {.layers = true, .ends = true}, bucket, units);
  return most = most_in_steps(e, pass, piece, units, memory.passes[pass], states);
}

double bytes_of_layers(const UnitBytes& units, const Piece& piece) {
  double bytes = 0;
  for (const Piece::Run& r : piece.runs) bytes += units[place_of_layers(r.kind)] * r.layers;
  return bytes;
}

double accumulated(const StateMemory& m, const Piece& piece, bool both_ends) {
  double bytes = piece.last ? m.accumulators[kHeadPlace] : 0;
  if (piece.first) bytes += m.accumulators[kEmbeddingPlace] - (both_ends ? m.shared_accumulators : 0);
  return bytes + bytes_of_layers(m.accumulators, piece);
}

}  // namespace sim
