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

double accumulated(const StateMemory& m, const UnitCounts& begun) {
  const bool shared = begun.embedding > 0 && begun.head > 0;
  return bytes_of(m.accumulators, begun) - (shared ? m.shared_accumulators : 0);
}

bool within(const UnitCounts& a, const UnitCounts& b) {
  bool is = a.embedding <= b.embedding && a.head <= b.head;
  for (std::size_t k = 0; k < a.layers.size(); ++k) is = is && a.layers[k] <= b.layers[k];
  return is;
}

void add_moment(std::vector<StageMoment>& moments, double bytes, const UnitCounts& begun) {
  for (const StageMoment& m : moments)
    if (m.bytes >= bytes && within(begun, m.begun)) return;
  std::erase_if(moments, [&](const StageMoment& m) { return m.bytes <= bytes && within(m.begun, begun); });
  moments.push_back({bytes, begun});
}

bool begins_gradients(Pass pass) {
  return pass == Pass::backward || pass == Pass::backward_input;
}

void add_units(const Piece& piece, UnitCounts& n) {
  if (piece.first) n.embedding += 1;
  if (piece.last) n.head += 1;
  for (const Piece::Run& r : piece.runs) n.layers[r.kind] += r.layers;
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
    if (once.units & set_of(units)) {
      s.always += once.bytes;
      s.per_sequence += once.per_sequence;
    }
  double updating =
      std::max(units.embedding > 0 ? m.optimizer.embedding : 0, units.head > 0 ? m.optimizer.head : 0);
  for (std::size_t k = 0; k < units.layers.size(); ++k)
    if (units.layers[k] > 0) updating = std::max(updating, m.optimizer.layers[k]);
  s.updating = accumulated(m, units) + updating;
  const double parameters = bytes_of(m.parameters, units) - (both_ends ? m.shared_parameters : 0);
  const StageCopies copies = copies_of_stage(scenario, parameters);
  const double step = number(copies.step_fp16) + number(copies.step_fp32);
  s.between_steps = std::max(number(copies.reduced), step);
  s.copies = number(copies.always);
  return s;
}

void PipelineMemory::add(StageActivations a) {
  const ChunkInFlight* held = a.in_flight->chunks.data();
  kept_.reserve(kept_.size() + a.in_flight->moments.size());
  for (const InFlight& f : a.in_flight->moments) {
    const PieceMemory& own = memory_[a.chunks[static_cast<std::size_t>(f.chunk)]];
    double bytes = begins_gradients(f.pass)          ? own.kept
                   : f.pass == Pass::backward_weight ? own.kept_for_weight
                                                     : 0;
    for (const std::size_t chunk : a.chunks) {
      bytes += memory_[chunk].kept * held->kept + memory_[chunk].kept_for_weight * held->waiting;
      ++held;
    }
    kept_.push_back(bytes + own.carried_back * f.carried_back);
  }
  stages_.push_back(std::move(a));
}

PipelineMemory::Fullness PipelineMemory::fullness(std::span<const std::size_t> chunks,
                                                  std::span<const ChunkInFlight> held) const {
  Fullness most;
  for (auto of_chunk = held.begin(); of_chunk != held.end();) {
    Fullness full;
    for (const std::size_t chunk : chunks) {
      full.bytes += memory_[chunk].kept * of_chunk->kept + memory_[chunk].kept_for_weight * of_chunk->waiting;
      full.waiting += of_chunk->waiting;
      ++of_chunk;
    }
    most = {std::max(most.bytes, full.bytes), std::max(most.waiting, full.waiting)};
  }
  return most;
}

Exchange PipelineMemory::exchange_of(const Strategy& t, const BucketLayers& bucket) {
  if (t.zero_stage < 2) return {};
  return {.zero_stage = t.zero_stage,
          .prefetch = t.zero_stage == 3 ? t.prefetch : 0,
          .bucket = bucket,
          .both_ends = false};
}

const StageMoments* PipelineMemory::moments_of(const Exchange& exchange, const StateMemory& m) const {
  const auto [first, added] = exchanges_.try_emplace(exchange);
  if (added) {
    constexpr std::size_t kUsualExchanges = 16;
    first = moments_.size();
    if (first == 0) moments_.reserve(kUsualExchanges * stages_.size());
    std::span<const double> kept = kept_with(exchange, m);
    for (const StageActivations& a : stages_) {
      Exchange of_stage = exchange;
      of_stage.both_ends = exchange.zero_stage >= 2 && a.units.embedding > 0 && a.units.head > 0;
      moments_.push_back(moments_of(a, kept.first(a.in_flight->moments.size()), of_stage, m));
      kept = kept.subspan(a.in_flight->moments.size());
    }
  }
  return moments_.data() + first;
}

std::span<const double> PipelineMemory::kept_with(const Exchange& exchange, const StateMemory& m) const {
  if (exchange.zero_stage < 2) return kept_;
  std::vector<double>& kept = kept_with_[static_cast<std::size_t>(exchange.zero_stage)];
  if (!kept.empty()) return kept;
  kept.reserve(kept_.size());
  std::vector<double> whole_layers;  // gradients of a stage's chunks, that may wait for a pass of weights
  for (const StageActivations& a : stages_) {
    whole_layers.assign(a.chunks.size(), 0);
    for (std::size_t c = 0; c < a.chunks.size(); ++c)
      for (const Piece::Run& r : pieces_[a.chunks[c]].runs)
        whole_layers[c] += m.whole_gradients.layers[r.kind] * r.layers;
    for (std::size_t i = 0; i < a.in_flight->moments.size(); ++i) {
      const InFlight& f = a.in_flight->moments[i];
      double bytes = kept_[kept.size()];
      const std::span<const ChunkInFlight> chunks = a.in_flight->chunks_of(i);
      for (std::size_t c = 0; c < chunks.size(); ++c) bytes += whole_layers[c] * chunks[c].waiting;
      bytes += m.shared_gradient * f.between_backward;
      if (exchange.zero_stage == 3) bytes += m.shared_gathered * f.between_forward;
      kept.push_back(bytes);
    }
  }
  return kept;
}

StageMoments PipelineMemory::moments_of(const StageActivations& a, std::span<const double> kept,
                                        const Exchange& exchange, const StateMemory& m) const {
  const bool accumulates = bytes_of(m.accumulators, a.units) > 0;
  StageMoments moments;
  UnitCounts begun, with_step;     // of a moment
  const PassMost* most = nullptr;  // of the pass and the piece of the moment at hand
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const InFlight& f = a.in_flight->moments[i];
    const InFlight* before = i > 0 ? &a.in_flight->moments[i - 1] : nullptr;
    if (!before || f.chunk != before->chunk || f.pass != before->pass) {
      const std::size_t own = a.chunks[static_cast<std::size_t>(f.chunk)];
      most = &pass_with(exchange, f.pass, pieces_[own], memory_[own], m);
    }
    if (!accumulates) {
      moments.bytes = std::max(moments.bytes, kept[i] + most->bytes);
      continue;
    }
    const std::span<const ChunkInFlight> chunks = a.in_flight->chunks_of(i);
    begun.embedding = begun.head = 0;
    begun.layers.assign(m.parameters.layers.size(), 0);
    for (std::size_t c = 0; c < a.chunks.size(); ++c)
      if (chunks[c].begun) add_units(pieces_[a.chunks[c]], begun);
    if (chunks[static_cast<std::size_t>(f.chunk)].begun || !begins_gradients(f.pass)) {
      add_moment(moments.begin_gradients, kept[i] + most->bytes, begun);
      continue;
    }
    for (const PassMost::Step& s : most->steps) {
      with_step = begun;
      with_step += s.begun;
      add_moment(moments.begin_gradients, kept[i] + s.bytes, with_step);
    }
  }
  return moments;
}

double PipelineMemory::peak_of_stage(const StageMoments& moments, const StageStates& s,
                                     const StateMemory& m) const {
  const double always = s.always + s.per_sequence * sequences_;
  double most = std::max(s.updating, moments.bytes);
  for (const StageMoment& moment : moments.begin_gradients)
    most = std::max(most, moment.bytes + accumulated(m, moment.begun));
  return always + std::max(most, s.between_steps) + s.copies;
}

}  // namespace sim
