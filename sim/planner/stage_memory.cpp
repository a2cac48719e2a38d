#include "sim/planner/stage_memory.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "sim/plan/device_memory.h"

namespace sim {

std::vector<std::vector<InFlight>> in_flight(const Schedule& schedule) {
  std::vector<std::vector<InFlight>> stages;
  const auto chunks = static_cast<std::size_t>(schedule.chunks);
  for (std::size_t stage = 0; stage < schedule.slots.size(); ++stage) {
    const std::vector<Slot>& slots = schedule.slots[stage];
    const auto piece = [&](const Slot& slot) {
      return schedule.piece(static_cast<std::int32_t>(stage), slot.chunk);
    };
    const bool has_both_ends = schedule.placement == Placement::v && stage == 0;
    std::int32_t between_forward = 0, between_backward = 0;
    std::vector<InFlight> most;
    std::vector<std::int32_t> kept(chunks), waiting(chunks);
    std::vector<bool> begun(chunks);
    std::int32_t all_kept = 0, all_waiting = 0;
    for (const Slot& slot : slots) {
      const auto c = static_cast<std::size_t>(slot.chunk);
      // The pass's own micro-batch is not one of the others.
      const bool ends_kept = slot.pass == Pass::backward || slot.pass == Pass::backward_input;
      const bool ends_waiting = slot.pass == Pass::backward_weight;
      const std::int32_t others = all_kept - ends_kept, others_waiting = all_waiting - ends_waiting;
      // Of those that are alike, the ones that hold most of either kind.
      const auto alike = [&](const InFlight& f) {
        return f.pass == slot.pass && f.chunk == slot.chunk && f.begun == begun;
      };
      const auto sum = [](const std::vector<std::int32_t>& of) {
        return std::accumulate(of.begin(), of.end(), 0);
      };
      const bool beaten = std::any_of(most.begin(), most.end(), [&](const InFlight& f) {
        return alike(f) && sum(f.kept) >= others && sum(f.waiting) >= others_waiting;
      });
      if (!beaten) {
        std::erase_if(most, [&](const InFlight& f) {
          return alike(f) && sum(f.kept) <= others && sum(f.waiting) <= others_waiting;
        });
        InFlight& now = most.emplace_back(
            InFlight{slot.pass, slot.chunk, begun, kept, waiting, between_forward, between_backward});
        now.kept[c] -= ends_kept;
        now.waiting[c] -= ends_waiting;
      }
      if (has_both_ends && slot.pass != Pass::backward_weight) {
        const bool is_first = piece(slot) == 0, is_last = piece(slot) == schedule.pieces() - 1;
        std::int32_t& between = slot.pass == Pass::forward ? between_forward : between_backward;
        const bool enters = slot.pass == Pass::forward ? is_first : is_last;
        if (is_first || is_last) between += enters ? 1 : -1;
      }
      all_kept += slot.pass == Pass::forward;
      all_kept -= ends_kept;
      all_waiting += slot.pass == Pass::backward_input;
      all_waiting -= ends_waiting;
      switch (slot.pass) {
        case Pass::forward:
          ++kept[c];
          break;
        case Pass::backward:
          --kept[c];
          begun[c] = true;
          break;
        case Pass::backward_input:
          --kept[c];
          ++waiting[c];
          begun[c] = true;
          break;
        case Pass::backward_weight:
          --waiting[c];
          break;
      }
    }
    stages.push_back(std::move(most));
  }
  return stages;
}

namespace {

// What a device holds where the most that is live, and what is live between steps, are so many bytes.
Bytes held(const Scenario& s, double live, double between_steps, double parameters) {
  const StageCopies copies = copies_of_stage(s, parameters);
  const auto number = [](Bytes b) { return static_cast<double>(b.value); };
  const double step = number(copies.step_fp16) + number(copies.step_fp32);
  const double gather = static_cast<double>(copies.gathered_ranks) * number(copies.gathered_part) +
                        number(copies.gathered_whole);
  const double most = std::max(live, between_steps + std::max({number(copies.reduced), step, gather})) +
                      number(copies.always);
  return {std::llround(most + s.implementation.memory.context_gib * kGiB)};
}

double bytes_of(const UnitBytes& u, const UnitCounts& n) {
  double bytes = u.embedding * n.embedding + u.head * n.head;
  for (std::size_t k = 0; k < n.layers.size(); ++k) bytes += u.layers[k] * n.layers[k];
  return bytes;
}

bool within(const UnitCounts& a, const UnitCounts& b) {
  bool is = a.embedding <= b.embedding && a.head <= b.head;
  for (std::size_t k = 0; k < a.layers.size(); ++k) is = is && a.layers[k] <= b.layers[k];
  return is;
}

void add(std::vector<StageMoment>& moments, StageMoment moment) {
  for (const StageMoment& m : moments)
    if (m.bytes >= moment.bytes && within(moment.begun, m.begun)) return;
  std::erase_if(moments, [&](const StageMoment& m) {
    return m.bytes <= moment.bytes && within(m.begun, moment.begun);
  });
  moments.push_back(std::move(moment));
}

}  // namespace

StageActivations stage_activations(const Scenario& scenario, std::vector<const Piece*> pieces,
                                   const std::vector<const PieceMemory*>& chunks,
                                   const std::vector<InFlight>& in_flight, std::int32_t micro_batches) {
  StageActivations a;
  a.pieces = std::move(pieces);
  a.chunks = chunks;
  a.in_flight = &in_flight;
  a.sequences = static_cast<double>(scenario.workload.micro_batch_size) * micro_batches;
  for (const Piece* p : a.pieces) {
    a.units.embedding += p->first ? 1 : 0;
    a.units.head += p->last ? 1 : 0;
    for (const Piece::Run& r : p->runs) {
      if (a.units.layers.size() <= r.kind) a.units.layers.resize(r.kind + 1);
      a.units.layers[r.kind] += r.layers;
    }
  }
  return a;
}

namespace {

bool begins_gradients(Pass pass) {
  return pass == Pass::backward || pass == Pass::backward_input;
}

UnitCounts units_of(const Piece& piece, std::size_t kinds) {
  UnitCounts n{.embedding = piece.first ? 1.0 : 0.0,
               .head = piece.last ? 1.0 : 0.0,
               .layers = std::vector<double>(kinds)};
  for (const Piece::Run& r : piece.runs) n.layers[r.kind] += r.layers;
  return n;
}

std::vector<StageMoment> moments_of(const StageActivations& a, const Exchange& exchange,
                                    const StateMemory& m) {
  std::vector<UnitCounts> units;
  std::vector<double> whole_layers;
  for (const Piece* p : a.pieces) {
    units.push_back(units_of(*p, m.parameters.layers.size()));
    UnitCounts layers = units.back();
    layers.embedding = layers.head = 0;
    whole_layers.push_back(bytes_of(m.whole_gradients, layers));
  }
  const bool whole = exchange.zero_stage >= 2, gathers = exchange.zero_stage == 3;
  const bool accumulates = bytes_of(m.accumulators, a.units) > 0;
  std::vector<StageMoment> moments;
  if (!accumulates) moments.emplace_back();
  for (const InFlight& f : *a.in_flight) {
    const auto own = static_cast<std::size_t>(f.chunk);
    double base = begins_gradients(f.pass)          ? a.chunks[own]->kept
                  : f.pass == Pass::backward_weight ? a.chunks[own]->kept_for_weight
                                                    : 0;
    for (std::size_t c = 0; c < a.chunks.size(); ++c) {
      base += a.chunks[c]->kept * f.kept[c] + a.chunks[c]->kept_for_weight * f.waiting[c];
      if (whole) base += whole_layers[c] * f.waiting[c];
    }
    if (whole) base += m.shared_gradient * f.between_backward;
    if (gathers) base += m.shared_gathered * f.between_forward;
    const PassMost& most =
        passes_with(exchange, *a.pieces[own], *a.chunks[own], m)[static_cast<std::size_t>(f.pass)];
    if (!accumulates) {
      moments.front().bytes = std::max(moments.front().bytes, base + most.bytes);
      continue;
    }
    UnitCounts begun{.layers = std::vector<double>(m.parameters.layers.size())};
    for (std::size_t c = 0; c < a.chunks.size(); ++c)
      if (f.begun[c]) begun += units[c];
    if (f.begun[own] || !begins_gradients(f.pass)) {
      add(moments, {base + most.bytes, begun});
      continue;
    }
    for (const PassMost::Step& s : most.steps) {
      StageMoment moment{base + s.bytes, begun};
      moment.begun += s.begun;
      add(moments, std::move(moment));
    }
  }
  return moments;
}

}  // namespace

Bytes peak_of_stage(const Scenario& scenario, const StageActivations& a, const StateMemory& m) {
  const Strategy& t = scenario.strategy;
  const bool both_ends = a.units.embedding > 0 && a.units.head > 0;
  const Exchange exchange{.zero_stage = t.zero_stage >= 2 ? t.zero_stage : 0,
                          .prefetch = t.zero_stage == 3 ? t.prefetch : 0,
                          .bucket_layers = t.zero_stage >= 2 ? m.bucket_layers : 1,
                          .bucket_expert_layers = t.zero_stage >= 2 ? m.bucket_expert_layers : 1,
                          .both_ends = both_ends};
  auto known =
      std::find_if(a.moments.begin(), a.moments.end(), [&](const auto& k) { return k.first == exchange; });
  if (known == a.moments.end()) known = a.moments.emplace(known, exchange, moments_of(a, exchange, m));

  double always = m.of_stage + bytes_of(m.always, a.units) + m.per_sequence * a.sequences;
  double parameters = bytes_of(m.parameters, a.units);
  if (both_ends) {
    always -= m.shared;
    parameters -= m.shared_parameters;
  }
  const auto accumulated = [&](const UnitCounts& begun) {
    const bool shared = begun.embedding > 0 && begun.head > 0;
    return bytes_of(m.accumulators, begun) - (shared ? m.shared_accumulators : 0);
  };
  double updating =
      std::max(a.units.embedding > 0 ? m.optimizer.embedding : 0, a.units.head > 0 ? m.optimizer.head : 0);
  for (std::size_t k = 0; k < a.units.layers.size(); ++k)
    if (a.units.layers[k] > 0) updating = std::max(updating, m.optimizer.layers[k]);
  double most = accumulated(a.units) + updating;
  for (const StageMoment& moment : known->second)
    most = std::max(most, moment.bytes + accumulated(moment.begun));
  return held(scenario, always + most, always, parameters);
}

}  // namespace sim
