#include "sim/planner/stage_memory.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
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
  UnitCounts all() const { return from(0); }
  UnitCounts none() const { return {.embedding = 0, .head = 0, .layers = std::vector<double>(kinds_)}; }

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

bool begins_gradients(Pass pass) {
  return pass == Pass::backward || pass == Pass::backward_input;
}

// The most in a pass, with what is gathered and reduced beside it.
struct PassMost {
  double bytes = 0;  // at any step
  struct Step {
    double bytes = 0;
    std::int32_t begun = 0;  // accumulators of units from this one on
  };
  std::vector<Step> steps;  // where it begins gradients: with what was begun before them
};

// `both_ends`: the stage has embedding and head.
PassMost most_of(Pass pass, const std::vector<PassStep>& steps, const Units& units, std::int32_t layers,
                 bool both_ends, const Strategy& strategy, const StateMemory& m) {
  const bool whole = strategy.zero_stage >= 2, gathers = strategy.zero_stage == 3;
  const bool forward = pass == Pass::forward;
  const double shared = both_ends && forward ? m.shared_gathered : 0;
  Gathered gathered(units, forward ? m.gathered_forward : m.gathered_backward, strategy.prefetch, steps,
                    shared);
  double all_layers = 0;
  for (std::int32_t l = 1; l <= layers; ++l) all_layers += units.of(m.whole_gradients, l);
  WholeGradients gradients(units, m, both_ends ? m.shared_gradient : 0,
                           pass == Pass::backward_weight ? all_layers : 0);
  PassMost most;
  std::int32_t begun = layers + 2;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const PassStep& s = steps[i];
    double bytes = s.most;
    const bool reads_parameters = gathers && pass != Pass::backward_weight;
    if (reads_parameters) {
      const double reading = s.reading + gathered.during(i);
      gathered.after(s);
      bytes = std::max(bytes + gathered.live(), reading);
    }
    const bool makes_gradients = begins_gradients(pass) && !s.recomputes;
    if (makes_gradients) begun = std::min(begun, s.unit);
    if (whole && makes_gradients) gradients.begin(s.unit);
    if (whole && !forward) bytes += gradients.live();
    most.bytes = std::max(most.bytes, bytes);
    if (begins_gradients(pass)) most.steps.push_back({bytes, begun});
    const bool has_weights =
        pass == Pass::backward_weight || pass == Pass::backward || !units.is_layer(s.unit);
    if (whole && has_weights && !forward && !s.recomputes) gradients.reduce(s.unit);
  }
  return most;
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

// Of steps between two others that begin layers of one kind, those that are no fuller than both ends: what is
// begun grows by the layer.
std::vector<PassMost::Step> corners(const std::vector<PassMost::Step>& steps, const Units& units) {
  std::vector<PassMost::Step> kept;
  const auto kind = [&](std::int32_t unit) {
    return units.is_layer(unit) ? static_cast<std::int64_t>(units.kind(unit)) : -1;
  };
  const auto below = [&](const PassMost::Step& a, const PassMost::Step& b, const PassMost::Step& c) {
    if (kind(a.begun) < 0 || kind(a.begun) != kind(b.begun) || kind(b.begun) != kind(c.begun)) return false;
    const double from_a = a.begun - b.begun, all = a.begun - c.begun;
    if (all == 0) return b.bytes <= std::max(a.bytes, c.bytes);
    return b.bytes <= a.bytes + (c.bytes - a.bytes) * from_a / all;
  };
  for (const PassMost::Step& s : steps) {
    while (kept.size() >= 2 && below(kept[kept.size() - 2], kept.back(), s)) kept.pop_back();
    kept.push_back(s);
  }
  return kept;
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

std::vector<StageMoment> moments_of(const StageActivations& a, const Strategy& strategy,
                                    const StateMemory& m) {
  const std::size_t kinds = m.parameters.layers.size();
  const bool both_ends = a.units.embedding > 0 && a.units.head > 0;
  std::vector<Units> units;
  std::vector<double> whole_layers;
  for (const Piece* p : a.pieces) {
    units.emplace_back(*p, kinds);
    UnitCounts layers = units.back().all();
    layers.embedding = layers.head = 0;
    whole_layers.push_back(bytes_of(m.whole_gradients, layers));
  }
  // Of chunks that hold equal pieces, once.
  std::vector<std::array<std::optional<PassMost>, 4>> known(a.pieces.size());
  const auto most_in = [&](std::size_t chunk, Pass pass) -> const PassMost& {
    std::size_t same = 0;
    while (a.pieces[same] != a.pieces[chunk]) ++same;
    std::optional<PassMost>& most = known[same][static_cast<std::size_t>(pass)];
    if (!most)
      most = most_of(pass, a.chunks[chunk]->of(pass), units[chunk], a.pieces[chunk]->layers(), both_ends,
                     strategy, m);
    return *most;
  };
  const bool whole = strategy.zero_stage >= 2, gathers = strategy.zero_stage == 3;
  const bool accumulates = bytes_of(m.accumulators, a.units) > 0;
  std::vector<StageMoment> moments;
  for (const InFlight& f : *a.in_flight) {
    const auto own = static_cast<std::size_t>(f.chunk);
    double base = f.pass == Pass::backward || f.pass == Pass::backward_input ? a.chunks[own]->kept
                  : f.pass == Pass::backward_weight                          ? a.chunks[own]->kept_for_weight
                                                                             : 0;
    UnitCounts begun = units[own].none();
    for (std::size_t c = 0; c < a.chunks.size(); ++c) {
      base += a.chunks[c]->kept * f.kept[c] + a.chunks[c]->kept_for_weight * f.waiting[c];
      if (whole) base += whole_layers[c] * f.waiting[c];
      if (f.begun[c]) begun += units[c].all();
    }
    if (whole) base += m.shared_gradient * f.between_backward;
    if (gathers) base += m.shared_gathered * f.between_forward;
    const PassMost& most = most_in(own, f.pass);
    if (!accumulates || f.begun[own] || !begins_gradients(f.pass)) {
      add(moments, {base + most.bytes, begun});
      continue;
    }
    for (const PassMost::Step& s : corners(most.steps, units[own])) {
      StageMoment moment{base + s.bytes, begun};
      moment.begun += units[own].from(s.begun);
      add(moments, std::move(moment));
    }
  }
  return moments;
}

}  // namespace

Bytes peak_of_stage(const Scenario& scenario, const StageActivations& a, const StateMemory& m) {
  const Strategy& t = scenario.strategy;
  const StageActivations::Exchange exchange{
      t.zero_stage >= 2 ? t.zero_stage : 0, t.zero_stage == 3 ? t.prefetch : 0,
      t.zero_stage >= 2 ? std::pair{m.bucket_layers, m.bucket_expert_layers} : std::pair{1, 1}};
  auto known =
      std::find_if(a.moments.begin(), a.moments.end(), [&](const auto& k) { return k.first == exchange; });
  if (known == a.moments.end()) known = a.moments.emplace(known, exchange, moments_of(a, t, m));

  const bool both_ends = a.units.embedding > 0 && a.units.head > 0;
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
