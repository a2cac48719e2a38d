#include "sim/planner/stage_memory.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/plan/device_memory.h"

namespace sim {
namespace {

double bytes_of(const UnitBytes& u, const UnitCounts& n) {
  double bytes = u.embedding * n.embedding + u.head * n.head;
  for (std::size_t k = 0; k < n.layers.size(); ++k) bytes += u.layers[k] * n.layers[k];
  return bytes;
}

bool begins_gradients(Pass pass) {
  return pass == Pass::backward || pass == Pass::backward_input;
}

UnitSet set_of(const UnitCounts& units) {
  UnitSet set = (units.embedding > 0 ? kEmbeddingUnit : 0) | (units.head > 0 ? kHeadUnit : 0);
  for (std::size_t k = 0; k < units.layers.size(); ++k)
    if (units.layers[k] > 0) set |= layers_of_kind(k);
  return set;
}

}  // namespace

StageStates stage_states(const Scenario& scenario, const StateMemory& m, const UnitCounts& units) {
  const auto number = [](Bytes b) { return static_cast<double>(b.value); };
  const bool both_ends = units.embedding > 0 && units.head > 0;
  StageStates s;
  s.always = bytes_of(m.always, units) - (both_ends ? m.shared : 0);
  for (const OncePerStage& once : m.once)
    if (once.units & set_of(units)) s.always += once.bytes;
  double updating =
      std::max(units.embedding > 0 ? m.optimizer.embedding : 0, units.head > 0 ? m.optimizer.head : 0);
  for (std::size_t k = 0; k < units.layers.size(); ++k)
    if (units.layers[k] > 0) updating = std::max(updating, m.optimizer.layers[k]);
  s.updating = bytes_of(m.accumulators, units) - (both_ends ? m.shared_accumulators : 0) + updating;
  const double parameters = bytes_of(m.parameters, units) - (both_ends ? m.shared_parameters : 0);
  const StageCopies copies = copies_of_stage(scenario, parameters);
  const double step = number(copies.step_fp16) + number(copies.step_fp32);
  s.between_steps = std::max(number(copies.reduced), step);
  s.copies = number(copies.always);
  return s;
}

double PipelineMemory::kept_at(std::span<const std::size_t> chunks, const InFlight& f,
                               std::span<const ChunkInFlight> held) const {
  const PieceMemory& own = memory_[chunks[static_cast<std::size_t>(f.chunk)]];
  double bytes = begins_gradients(f.pass)          ? own.kept
                 : f.pass == Pass::backward_weight ? own.kept_for_weight
                                                   : 0;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const PieceMemory& piece = memory_[chunks[c]];
    bytes += piece.kept * held[c].kept + piece.kept_for_weight * held[c].waiting;
  }
  return bytes + own.carried_back * f.carried_back;
}

void PipelineMemory::add(StageActivations a) {
  for (std::size_t i = 0; i < a.in_flight->moments.size(); ++i)
    kept_.push_back(kept_at(a.chunks, a.in_flight->moments[i], a.in_flight->chunks_of(i)));
  for (const OncePerStage& o : once_)
    if (o.units & set_of(a.units)) a.once += o.bytes + o.per_micro_batch * micro_batches_;
  stages_.push_back(std::move(a));
}

PipelineMemory::Fullness PipelineMemory::fullness(std::span<const std::size_t> chunks,
                                                  const StageInFlight& in_flight) const {
  Fullness most;
  for (std::size_t i = 0; i < in_flight.moments.size(); ++i) {
    const InFlight& f = in_flight.moments[i];
    const std::span<const ChunkInFlight> held = in_flight.chunks_of(i);
    const PieceMemory& own = memory_[chunks[static_cast<std::size_t>(f.chunk)]];
    std::int32_t waiting = 0;
    for (const ChunkInFlight& c : held) waiting += c.waiting;
    most.waiting = std::max(most.waiting, waiting);
    most.bytes = std::max(most.bytes, kept_at(chunks, f, held) + own.most[static_cast<std::size_t>(f.pass)]);
  }
  return most;
}

PipelineMemory::Fullness PipelineMemory::fullness(std::span<const std::size_t> chunks,
                                                  const MostHeld& held) const {
  Fullness most;
  for (auto of_chunk = held.chunks.begin(); of_chunk != held.chunks.end();) {
    Fullness full;
    for (const std::size_t chunk : chunks) {
      full.bytes += memory_[chunk].kept * of_chunk->kept + memory_[chunk].kept_for_weight * of_chunk->waiting;
      full.waiting += of_chunk->waiting;
      ++of_chunk;
    }
    most = {std::max(most.bytes, full.bytes), std::max(most.waiting, full.waiting)};
  }
  double of_pass = 0;
  for (const std::size_t chunk : chunks) {
    const PieceMemory& own = memory_[chunk];
    of_pass =
        std::max(of_pass, std::max(own.kept, own.kept_for_weight) + own.carried_back * held.carried_back +
                              *std::max_element(own.most.begin(), own.most.end()));
  }
  return {most.bytes + of_pass, most.waiting};
}

const double* PipelineMemory::most_in_passes(const Scenario& s, const StateMemory& m,
                                             const BucketLayers& bucket) const {
  Exchange exchange;
  if (const int zero = s.strategy.zero_stage; zero >= 2)
    exchange = {.zero_stage = zero,
                .prefetch = zero == 3 ? s.strategy.prefetch : 0,
                .layers = bucket.of(Unit::layer),
                .expert_layers = bucket.of(Unit::expert_layer)};
  if (s.implementation.memory.weight_gradient == WeightGradient::fresh) exchange.begun = &m;
  const auto [first, added] = exchanges_.try_emplace(exchange);
  if (added) {
    first = most_.size();
    const double* kept = kept_.data();
    for (const StageActivations& a : stages_) {
      most_.push_back(most_in_passes(a, kept, exchange, s, m));
      kept += a.in_flight->moments.size();
    }
  }
  return most_.data() + first;
}

double PipelineMemory::most_in_passes(const StageActivations& a, const double* kept, Exchange exchange,
                                      const Scenario& scenario, const StateMemory& m) const {
  const bool exchanges = exchange.zero_stage >= 2, begins = exchange.begun;
  exchange.both_ends = (exchanges || begins) && a.units.embedding > 0 && a.units.head > 0;
  // Gradients of a stage's chunks: of a micro-batch, which may wait for a pass of weights, and accumulated.
  thread_local std::vector<double> whole, begun;  // kept from one stage to the next
  whole.assign(a.chunks.size(), 0);
  begun.assign(a.chunks.size(), 0);
  for (std::size_t c = 0; (exchanges || begins) && c < a.chunks.size(); ++c) {
    const Piece& piece = pieces_[a.chunks[c]];
    for (const Piece::Run& r : piece.runs)
      if (exchanges) whole[c] += m.whole_gradients.layers[r.kind] * r.layers;
    if (begins) begun[c] = accumulated(m, piece, exchange.both_ends);
  }
  double most = 0, of_pass = 0;
  for (std::size_t i = 0; i < a.in_flight->moments.size(); ++i) {
    const InFlight& f = a.in_flight->moments[i];
    const std::span<const ChunkInFlight> chunks = a.in_flight->chunks_of(i);
    const auto own = static_cast<std::size_t>(f.chunk);
    const bool begins_own = begins && begins_gradients(f.pass) && !chunks[own].begun;
    const InFlight* before = i > 0 ? &a.in_flight->moments[i - 1] : nullptr;
    if (begins || !before || f.chunk != before->chunk || f.pass != before->pass) {
      Exchange of_own = exchange;
      if (!begins_own) of_own.begun = nullptr;
      const std::size_t piece = a.chunks[own];
      of_pass = most_with(of_own, f.pass, scenario, pieces_[piece], memory_[piece], m);
    }
    double bytes = kept[i] + of_pass;
    if (exchanges) bytes += m.shared_gradient * f.between_backward;
    if (exchange.zero_stage == 3) bytes += m.shared_gathered * f.between_forward;
    for (std::size_t c = 0; (exchanges || begins) && c < chunks.size(); ++c) {
      bytes += whole[c] * chunks[c].waiting;
      if (chunks[c].begun) bytes += begun[c];
    }
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace sim
