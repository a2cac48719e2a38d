#include "sim/planner/stage_memory.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sim/plan/device_memory.h"

namespace sim {
namespace {

double bytes_of(const UnitBytes& u, const UnitCounts& n) {
  return std::inner_product(n.begin(), n.end(), u.begin(), 0.0);
}

bool begins_gradients(Pass pass) {
  return pass == Pass::backward || pass == Pass::backward_input;
}

UnitSet set_of(const UnitCounts& units) {
  UnitSet set = 0;
  for (std::size_t p = 0; p < units.size(); ++p)
    if (units[p] > 0) set |= at_place(p);
  return set;
}

bool has_both_ends(const UnitCounts& units) {
  return units[kEmbeddingPlace] > 0 && units[kHeadPlace] > 0;
}

}  // namespace

StageStates stage_states(const Scenario& scenario, const StateMemory& m, const UnitCounts& units) {
  const auto number = [](Bytes b) { return static_cast<double>(b.value); };
  const bool both_ends = has_both_ends(units);
  StageStates s;
  s.always = bytes_of(m.always, units) - (both_ends ? m.shared : 0);
  for (const OncePerStage& once : m.once)
    if (once.units & set_of(units)) s.always += once.bytes;
  double updating = 0;
  for (std::size_t p = 0; p < units.size(); ++p)
    if (units[p] > 0) updating = std::max(updating, m.optimizer[p]);
  const double accumulators = bytes_of(m.accumulators, units);
  s.updating = accumulators - (both_ends ? m.shared_accumulators : 0) + updating;
  s.exchanged = accumulators + bytes_of(m.gathered_forward, units) + bytes_of(m.gathered_backward, units) +
                m.shared_gathered + m.shared_gradient;
  s.whole_gradients = bytes_of(m.whole_gradients, units);
  const double parameters = bytes_of(m.parameters, units) - (both_ends ? m.shared_parameters : 0);
  const StageCopies copies = copies_of_stage(scenario, parameters);
  const double step = number(copies.step_fp16) + number(copies.step_fp32);
  s.between_steps = std::max(number(copies.reduced), step);
  s.copies = number(copies.always);
  return s;
}

void PipelineMemory::add(std::span<const std::size_t> chunks, UnitCounts units) {
  Kind& kind = kinds_.emplace_back(Kind{.chunks = chunks, .units = std::move(units), .moments = {}});
  for (const OncePerStage& o : once_)
    if (o.units & set_of(kind.units)) kind.once += o.bytes + o.per_micro_batch * micro_batches_;
}

void PipelineMemory::find_moments(std::span<const std::size_t> kind_of_stage,
                                  const StagesInFlight& in_flight) {
  // Whether a is never fuller than b, of the same pass and chunk, whatever is exchanged.
  const auto within = [](const Moment& a, const Moment& b) {
    return a.kept <= b.kept && a.flight->between_forward <= b.flight->between_forward &&
           a.flight->between_backward <= b.flight->between_backward &&
           std::equal(a.chunks.begin(), a.chunks.end(), b.chunks.begin(),
                      [](const ChunkInFlight& x, const ChunkInFlight& y) {
                        return x.waiting <= y.waiting && x.begun == y.begun;
                      });
  };
  const std::size_t chunks = kinds_.front().chunks.size();
  const InFlight* before = nullptr;
  for (std::size_t i = 0; i < in_flight.moments.size(); ++i) {
    const InFlight& f = in_flight.moments[i];
    const auto stage = static_cast<std::size_t>(f.stage);
    Kind& kind = kinds_[kind_of_stage[stage]];
    if (f.covered && kind_of_stage[stage - 1] == kind_of_stage[stage]) continue;
    if (!before || before->pass != f.pass || before->chunk != f.chunk)
      for (Kind& k : kinds_) k.first_alike = k.moments.size();
    before = &f;
    Moment m{&f, std::span(in_flight.chunks).subspan(i * chunks, chunks)};
    const PieceMemory& own = memory_[kind.chunks[static_cast<std::size_t>(f.chunk)]];
    m.kept = own.carried_back * f.carried_back + (begins_gradients(f.pass)          ? own.kept
                                                  : f.pass == Pass::backward_weight ? own.kept_for_weight
                                                                                    : 0);
    for (std::size_t c = 0; c < chunks; ++c) {
      const PieceMemory& piece = memory_[kind.chunks[c]];
      m.kept += piece.kept * m.chunks[c].kept + piece.kept_for_weight * m.chunks[c].waiting;
    }
    const auto alike = kind.moments.begin() + static_cast<std::ptrdiff_t>(kind.first_alike);
    if (std::any_of(alike, kind.moments.end(), [&](const Moment& other) { return within(m, other); }))
      continue;
    kind.moments.erase(
        std::remove_if(alike, kind.moments.end(), [&](const Moment& other) { return within(other, m); }),
        kind.moments.end());
    kind.moments.push_back(m);
  }
  for (Kind& kind : kinds_)
    for (const Moment& m : kind.moments) {
      const InFlight& f = *m.flight;
      const PieceMemory& own = memory_[kind.chunks[static_cast<std::size_t>(f.chunk)]];
      double waiting = 0;
      for (const ChunkInFlight& c : m.chunks) waiting += c.waiting;
      kind.least = std::max(kind.least, m.kept + own.most[f.pass]);
      kind.waiting = std::max(kind.waiting, waiting);
      kind.between = std::max<double>(kind.between, f.between_forward + f.between_backward);
    }
}

const double* PipelineMemory::most_in_passes(const Scenario& s, const StateMemory& m,
                                             const BucketLayers& bucket) const {
  Exchange exchange;
  if (const int zero = s.strategy.zero_stage; zero >= 2)
    exchange = {.zero_stage = zero,
                .prefetch = zero == 3 ? s.strategy.prefetch : 0,
                .layers = bucket[Unit::layer],
                .expert_layers = bucket[Unit::expert_layer]};
  if (s.implementation.memory.weight_gradient == WeightGradient::fresh) exchange.begun = &m;
  const auto [first, added] = exchanges_.try_emplace(exchange);
  if (added) {
    first = most_.size();
    for (const Kind& kind : kinds_) most_.push_back(most_in_passes(kind, exchange, s, m));
  }
  return most_.data() + first;
}

double PipelineMemory::most_in_passes(const Kind& kind, Exchange exchange, const Scenario& scenario,
                                      const StateMemory& m) const {
  const bool exchanges = exchange.zero_stage >= 2, begins = exchange.begun;
  exchange.both_ends = (exchanges || begins) && has_both_ends(kind.units);
  // Gradients of a chunk: those of a micro-batch, which may wait for a pass of weights, and accumulated ones.
  double most = 0;
  for (const Moment& moment : kind.moments) {
    const InFlight& f = *moment.flight;
    const auto own = static_cast<std::size_t>(f.chunk);
    Exchange of_own = exchange;
    if (!begins_gradients(f.pass) || moment.chunks[own].begun) of_own.begun = nullptr;
    const std::size_t piece = kind.chunks[own];
    double bytes = moment.kept + most_with(of_own, f.pass, scenario, pieces_[piece], memory_[piece], m);
    if (exchanges) bytes += m.shared_gradient * f.between_backward;
    if (exchange.zero_stage == 3) bytes += m.shared_gathered * f.between_forward;
    for (std::size_t c = 0; c < moment.chunks.size(); ++c) {
      const Piece& of_chunk = pieces_[kind.chunks[c]];
      if (exchanges && moment.chunks[c].waiting > 0)
        bytes += bytes_of_layers(m.whole_gradients, of_chunk) * moment.chunks[c].waiting;
      if (begins && moment.chunks[c].begun) bytes += accumulated(m, of_chunk, exchange.both_ends);
    }
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace sim
