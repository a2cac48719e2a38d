#include "sim/planner/exchange_memory.h"

#include <algorithm>
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

// A pass from step to step, with the parameters that are gathered for it unit by unit, ahead of it, and freed
// one by one as a unit reads them for the last time; with whole gradients of a micro-batch, from a unit's
// backward pass until they are reduced, alone or with others; and with accumulated ones that begin with it.
class ExchangingPass {
 public:
  // `of_first`: space.
  ExchangingPass(const Exchange& exchange, Pass pass, const Piece& piece, const PieceMemory& memory,
                 const StateMemory& states, std::vector<double>& of_first)
      : e_(exchange),
        pass_(pass),
        steps_(memory.of(pass)),
        states_(states),
        gathers_(gathers(exchange, pass)),
        reduces_(reduces(exchange, pass)),
        gathered_bytes_(pass == Pass::forward ? states.gathered_forward : states.gathered_backward),
        shared_gathered_(exchange.both_ends && pass == Pass::forward ? states.shared_gathered : 0),
        of_first_(of_first) {
    if (reduces_ && pass == Pass::backward_weight)
      for (const Piece::Run& r : piece.runs) gradients_ += states.whole_gradients.layers[r.kind] * r.layers;
    of_first_.assign(1, 0);
    for (const PassStep& s : steps_)
      if (gathers_ && s.is_first_of_unit)
        of_first_.push_back(of_first_.back() + bytes_of(gathered_bytes_, s));
  }

  // The most at any step. `units`: the pass's.
  double most(const std::vector<UnitStep>& units) {
    std::size_t at = 0;
    for (const UnitStep& u : units) {
      if (u.flushed > 0) {
        reduce(u.flushed);
        continue;
      }
      if (at == steps_.size()) break;
      const OfUnit bytes = of_unit(steps_[at]);
      for (std::int32_t n = 0; n < u.count; ++n) {
        if (u.recomputes && steps_[at].recomputes) take(steps_[at++], 0);
        if (!u.works || at == steps_.size()) continue;
        gradients_ += bytes.begun;
        take(steps_[at++], bytes.gathered);
        if (!u.reduces) continue;
        last_waiting_ = bytes.reduced;
        waiting_ += last_waiting_;
        if (++units_waiting_ == u.bucket) reduce(u.bucket);
      }
    }
    return most_;
  }

 private:
  // Bytes of a unit: gathered and freed by its step, begun with it, reduced after it.
  struct OfUnit {
    double gathered = 0, begun = 0, reduced = 0;
  };
  OfUnit of_unit(const PassStep& s) const {
    const bool head_of_both = e_.both_ends && is_head(s), embedding_of_both = e_.both_ends && is_embedding(s);
    OfUnit bytes;
    // What the head uses of the embedding's is gathered before the one and freed after the other; of
    // gradients what both share is reduced with the embedding's.
    if (gathers_)
      bytes.gathered = bytes_of(gathered_bytes_, s) + (head_of_both ? shared_gathered_ : 0) -
                       (embedding_of_both ? shared_gathered_ : 0);
    if (reduces_)
      bytes.reduced = bytes_of(states_.whole_gradients, s) - (head_of_both ? states_.shared_gradient : 0);
    if (reduces_ && pass_ != Pass::backward_weight) bytes.begun = bytes_of(states_.whole_gradients, s);
    if (e_.begun)
      bytes.begun +=
          bytes_of(states_.accumulators, s) - (embedding_of_both ? states_.shared_accumulators : 0);
    return bytes;
  }
  // The first units whose gradients wait: all of them, or all but the last.
  void reduce(std::int32_t units) {
    const double stays = units == units_waiting_ ? 0 : last_waiting_;
    gradients_ -= waiting_ - stays;
    waiting_ = stays;
    units_waiting_ -= units;
  }
  // `read`: bytes of parameters that the step is the last to read.
  void take(const PassStep& s, double read) {
    double at_most = s.most;
    if (gathers_) {
      units_begun_ += s.is_first_of_unit;
      if (!s.recomputes) {
        freed_ += read;
        at_most = std::max(at_most, s.begin + most_while_reading(s, read));
      }
      const std::size_t gathered = units_begun_ + static_cast<std::size_t>(e_.prefetch);
      at_most += of_first_[std::min(gathered, of_first_.size() - 1)] - freed_;
    }
    most_ = std::max(most_, at_most + gradients_);
  }
  // Found once for steps alike.
  double most_while_reading(const PassStep& s, double read) {
    if (s.change == change_ && read == read_) return while_reading_;
    change_ = s.change;
    read_ = read;
    while_reading_ = 0;
    for (const StepChange::WhileReading& r : s.change->reads)
      while_reading_ = std::max(while_reading_, r.most + r.share * read);
    return while_reading_;
  }

  const Exchange& e_;
  Pass pass_;
  const std::vector<PassStep>& steps_;
  const StateMemory& states_;
  bool gathers_, reduces_;
  const UnitBytes& gathered_bytes_;
  double shared_gathered_;
  std::vector<double>& of_first_;  // parameters of no unit, of the first, of the first two, ...
  double most_ = 0, gradients_ = 0, freed_ = 0;
  std::size_t units_begun_ = 0;
  double waiting_ = 0, last_waiting_ = 0;  // gradients to be reduced; the last unit's of them
  std::int32_t units_waiting_ = 0;
  const StepChange* change_ = nullptr;  // that while_reading_ is of
  double read_ = 0, while_reading_ = 0;
};

}  // namespace

double most_with(const Exchange& exchange, Pass pass, const Scenario& scenario, const Piece& piece,
                 const PieceMemory& memory, const StateMemory& states) {
  const Exchange e = in_pass(exchange, pass, memory);
  if (e == Exchange{}) return memory.most[static_cast<std::size_t>(pass)];
  const auto [most, added] = memory.with_exchanges[static_cast<std::size_t>(pass)].try_emplace(e);
  if (!added) return most;
  BucketLayers bucket;
  bucket.of(Unit::layer) = e.layers;
  bucket.of(Unit::expert_layer) = e.expert_layers;
  const auto [units, is_new] = memory.units_with[static_cast<std::size_t>(pass)].try_emplace(bucket);
  if (is_new) set_pass_steps(scenario, piece, pass, {.layers = true, .ends = true}, bucket, units);
  thread_local std::vector<double> of_first;  // kept from one pass to the next
  return most = ExchangingPass(e, pass, piece, memory, states, of_first).most(units);
}

double accumulated(const StateMemory& m, const Piece& piece, bool both_ends) {
  double bytes = piece.last ? m.accumulators.head : 0;
  if (piece.first) bytes += m.accumulators.embedding - (both_ends ? m.shared_accumulators : 0);
  for (const Piece::Run& r : piece.runs) bytes += m.accumulators.layers[r.kind] * r.layers;
  return bytes;
}

}  // namespace sim
