#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "sim/plan/layer_division.h"
#include "sim/plan/pass_steps.h"
#include "sim/plan/programs.h"

namespace sim {
namespace {

class StageWriter {
 public:
  StageWriter(const Scenario& scenario, const StepBlocks& blocks, const Schedule& schedule,
              std::int32_t stage)
      : scenario_(scenario),
        strategy_(scenario.strategy),
        blocks_(blocks),
        schedule_(schedule),
        slots_(schedule.slots[static_cast<std::size_t>(stage)]),
        stage_(stage),
        layers_(static_cast<std::int32_t>(scenario.model.num_hidden_layers)),
        variables_{.batch = scenario.workload.micro_batch_size,
                   .query_length = scenario.workload.seq_len / strategy_.context_parallel,
                   .kv_length = scenario.workload.seq_len},
        pieces_(pieces_of(scenario, blocks.kinds)),
        chunk_ends_(static_cast<std::size_t>(schedule.chunks)) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      ChunkEnd& end = chunk_ends_[static_cast<std::size_t>(slots_[i].chunk)];
      const Pass pass = slots_[i].pass;
      if (pass == Pass::backward || pass == Pass::backward_input) end.input = i;
      if (pass == Pass::backward || pass == Pass::backward_weight) end.weight = i;
    }
  }

  Program write() {
    program_.role = "stage " + std::to_string(stage_);
    if (gathers_ahead(scenario_))
      for_each_unit([&](const At& u) {
        gathered_ahead_[key(u)] = collective(blocks_.gather_updated[u.unit], Phase::optimizer, u.layer);
      });
    if (!fresh_gradients())
      for_each_unit([&](const At& u) { compute(blocks_.zero[u.unit], Phase::optimizer, u.layer); });
    compute(blocks_.zero_first_squares, Phase::optimizer, 0);
    for (std::size_t i = 0; i < slots_.size();) {
      const std::size_t first = i;
      while (slots_[i].with_next) ++i;
      ++i;
      const auto each = [&](auto visit) {
        for (slot_ = first; slot_ < i; ++slot_) {
          micro_batch_ = slots_[slot_].micro_batch;
          chunk_ = slots_[slot_].chunk;
          visit(slots_[slot_].pass);
        }
      };
      each([this](Pass pass) { receive(pass); });
      each([this](Pass pass) { work(pass); });
      each([this](Pass pass) { send(pass); });
      if (blocks_.zero_first_squares >= 0 && slots_[first].pass == Pass::backward && micro_batch_ == 0)
        add_first_squares();
    }
    micro_batch_ = chunk_ = 0;
    slot_ = slots_.size();
    optimizer();
    program_.sections.push_back({"step", 0, program_.actions.size()});
    return std::move(program_);
  }

 private:
  // A unit at its place in the model.
  struct At {
    Unit unit{};
    std::int32_t layer = 0;
  };
  // A unit's number in the stage: a layer's own, -1 for the embedding, one past the layers for the head.
  std::int32_t key(const At& u) const {
    return is_layer(u.unit) ? u.layer : u.unit == Unit::embedding ? -1 : layers_;
  }
  const LayerBlocks& layer_blocks(std::int32_t layer) const {
    const LayerKind kind = kind_of_layer(scenario_, layer);
    const auto at = std::ranges::find(blocks_.kinds, kind) - blocks_.kinds.begin();
    return blocks_.layers[static_cast<std::size_t>(at)];
  }

  std::int32_t piece() const { return schedule_.piece(stage_, chunk_); }
  LayerRange range() const { return layers_of(scenario_, piece()); }
  RecomputePlace place(std::int32_t layer) const {
    return recompute_place(strategy_, layer, range().first, range().last);
  }

  template <class Visit>
  void for_each_unit(Visit visit) const {
    for (std::int32_t chunk = 0; chunk < schedule_.chunks; ++chunk) {
      const std::int32_t p = schedule_.piece(stage_, chunk);
      const LayerRange layers = layers_of(scenario_, p);
      if (p == 0) visit(At{Unit::embedding, 0});
      for (std::int32_t l = layers.first; l < layers.last; ++l)
        visit(At{kind_of_layer(scenario_, l).unit(), l});
      if (p == schedule_.pieces() - 1) visit(At{Unit::head, layers_});
    }
  }

  // Whether the first backward pass begins gradients, so that nothing sets them to zero before.
  bool fresh_gradients() const {
    return scenario_.implementation.memory.weight_gradient == WeightGradient::fresh;
  }

  // ---- Actions.

  std::int32_t add(BlockId block, Phase phase, std::int32_t layer, std::int32_t stream, std::int32_t wait) {
    program_.actions.push_back({.block = block,
                                .phase = phase,
                                .layer = layer,
                                .micro_batch = micro_batch_,
                                .chunk = chunk_,
                                .stream = stream,
                                .wait = wait,
                                .variables = variables_});
    return static_cast<std::int32_t>(program_.actions.size()) - 1;
  }
  // Actions that another waits for.
  struct Waits {
    std::int32_t first = -1, also = -1;
  };
  void compute(BlockId block, Phase phase, std::int32_t layer, Waits waits = {-1, -1}) {
    if (block < 0) return;
    last_compute_ = add(block, phase, layer, kComputeStream, waits.first);
    program_.actions.back().wait_also = waits.also;
  }
  // Adds a collective that begins when everything computed so far is there.
  std::int32_t collective(BlockId block, Phase phase, std::int32_t layer) {
    if (block < 0) return -1;
    return last_collective_ = add(block, phase, layer, kCollectiveStream, last_compute_);
  }

  // ---- Exchanges with other stages.

  // The stage that has a piece; this one where there is nothing to send.
  Schedule::Place neighbour(std::int32_t p) const {
    return p < 0 || p >= schedule_.pieces() ? Schedule::Place{stage_, chunk_} : schedule_.place_of(p, chunk_);
  }

  void receive(Pass pass) {
    if (pass == Pass::backward_weight) return;
    const bool forward = pass == Pass::forward;
    const Schedule::Place from = neighbour(piece() + (forward ? -1 : 1));
    if (from.stage == stage_) return;
    if (forward)
      compute(blocks_.receive_activation, Phase::forward, range().first);
    else
      compute(blocks_.receive_gradient, Phase::backward, range().last);
    program_.actions.back().peer = from.stage;
  }

  void send(Pass pass) {
    if (pass == Pass::backward_weight) return;
    const bool forward = pass == Pass::forward;
    const Schedule::Place to = neighbour(piece() + (forward ? 1 : -1));
    if (to.stage == stage_) return;
    const std::int32_t sent =
        forward ? add(blocks_.send_activation, Phase::forward, range().last, kSendStream, last_compute_)
                : add(blocks_.send_gradient, Phase::backward, range().first, kSendStream, last_compute_);
    Action& a = program_.actions[static_cast<std::size_t>(sent)];
    a.peer = to.stage;
    a.chunk = to.chunk;
  }

  // ---- Passes.

  void work(Pass pass) {
    const ChunkEnd& end = chunk_ends_[static_cast<std::size_t>(chunk_)];
    const bool each = strategy_.zero_stage >= 2;  // no micro-batch waits for the others
    set_pass_steps(scenario_, pieces_[piece()], pass,
                   {.layers = each || slot_ == end.weight, .ends = each || slot_ == end.input},
                   blocks_.bucket(), steps_);
    readers_.clear();
    gathered_.clear();
    fetched_.clear();
    next_reader_ = 0;
    for_each_of(steps_, [this](const UnitStep& s, const At& u) {
      if (s.reads) readers_.push_back(u);
    });
    for_each_of(steps_, [&](const UnitStep& s, const At& u) { run(pass, s, u); });
    while (!left_.empty()) copy_to_host();
  }

  // visit(step, unit) for each unit of each step.
  template <class Visit>
  void for_each_of(const std::vector<UnitStep>& steps, Visit visit) const {
    for (const UnitStep& s : steps)
      for (std::int32_t n = 0; n < s.count; ++n)
        visit(s, At{s.unit, is_layer(s.unit)            ? range().first + s.layer + s.direction * n
                            : s.unit == Unit::embedding ? 0
                                                        : layers_});
  }

  void run(Pass pass, const UnitStep& s, const At& u) {
    if (s.flushed > 0) return reduce_first(s.flushed);
    Waits waits = s.reads ? before_reading(pass, u) : Waits{};
    if (pass == Pass::forward) waits.also = room_for_another();
    if (const BlockId again = s.recomputes ? layer_blocks(u.layer).recompute.at(place(u.layer)) : -1;
        again >= 0)
      compute(again, Phase::recompute, u.layer, std::exchange(waits, {}));
    if (!s.works) return;
    if (pass == Pass::backward || pass == Pass::backward_input) {
      if (fresh_gradients() && begun_.insert(key(u)).second)
        compute(blocks_.zero[u.unit], Phase::backward, u.layer);
      compute(blocks_.zero_whole[u.unit], Phase::backward, u.layer);
    }
    variables_.begins_gradients = begins_gradients(pass, u);
    compute(block_of(pass, u), pass == Pass::forward ? Phase::forward : Phase::backward, u.layer, waits);
    variables_.begins_gradients = false;
    if (pass == Pass::forward) to_host(u);
    if (!s.reduces) return;
    waiting_.push_back(u);
    if (static_cast<std::int32_t>(waiting_.size()) == s.bucket) reduce_first(s.bucket);
  }

  // Whether nothing has yet written the unit's gradients that this pass's products make. For layers, a pass
  // of inputs makes none.
  bool begins_gradients(Pass pass, const At& u) {
    const bool has = pass != Pass::forward && u.unit != Unit::embedding &&
                     !(pass == Pass::backward_input && is_layer(u.unit));
    return has && products_write_gradients(scenario_) && begun_.insert(key(u)).second;
  }

  BlockId block_of(Pass pass, const At& u) const {
    const bool forward = pass == Pass::forward;
    if (u.unit == Unit::embedding) return forward ? blocks_.embedding : blocks_.embedding_backward;
    if (u.unit == Unit::head) return forward ? blocks_.head : blocks_.head_backward;
    const LayerBlocks& layer = layer_blocks(u.layer);
    switch (pass) {
      case Pass::forward:
        return layer.forward.at(place(u.layer));
      case Pass::backward:
        return layer.backward.at(place(u.layer));
      case Pass::backward_input:
        return layer.backward_input.at(place(u.layer));
      case Pass::backward_weight:
        break;
    }
    return layer.weight;
  }

  // Under ZeRO 3 parameters are gathered while earlier units compute, as many units ahead as the strategy
  // says.
  Waits before_reading(Pass pass, const At& u) {
    const bool forward = pass == Pass::forward;
    const UnitBlocks& gather = forward ? blocks_.gather_for_forward : blocks_.gather_for_backward;
    const auto ahead = static_cast<std::size_t>(strategy_.prefetch);
    Waits waits;
    while (!forward && fetched_.size() < readers_.size() && fetched_.size() <= next_reader_ + 1)
      fetched_.push_back(fetch(readers_[fetched_.size()]));
    if (!forward) waits.also = fetched_[next_reader_];
    while (gathered_.size() < readers_.size() && gathered_.size() <= next_reader_ + ahead) {
      const At& next = readers_[gathered_.size()];
      gathered_.push_back(
          collective(gather[next.unit], forward ? Phase::forward : Phase::backward, next.layer));
    }
    waits.first = gathered_[next_reader_++];
    if (const auto ahead_of_step = gathered_ahead_.find(key(u));
        waits.first < 0 && forward && ahead_of_step != gathered_ahead_.end()) {
      waits.first = ahead_of_step->second;
      gathered_ahead_.erase(ahead_of_step);
    }
    return waits;
  }

  // ---- Activations that wait in the host's memory.

  bool waits_on_host(const At& u) const {
    return is_layer(u.unit) && layer_blocks(u.layer).to_host >= 0 && place(u.layer).first;
  }
  // A layer's kept results are copied while the next layer computes. At most two layers' are there at a time.
  void to_host(const At& u) {
    if (left_.size() == 2) copy_to_host();
    if (waits_on_host(u)) left_.push_back({u, last_compute_});
  }
  void copy_to_host() {
    const auto [u, computed] = left_.front();
    left_.pop_front();
    last_to_host_ = add(layer_blocks(u.layer).to_host, Phase::forward, u.layer, kToHostStream, computed);
    on_host_[{u.layer, micro_batch_}] = last_to_host_;
  }
  std::int32_t room_for_another() {
    if (left_.size() == 2) copy_to_host();
    return last_to_host_;
  }
  std::int32_t fetch(const At& u) {
    if (!waits_on_host(u)) return -1;
    const std::int32_t action =
        add(layer_blocks(u.layer).from_host, Phase::backward, u.layer, kFromHostStream, last_compute_);
    program_.actions.back().wait_also = on_host_.at({u.layer, micro_batch_});
    return action;
  }

  // ---- Gradients.

  // One message: the gradients of a unit, or of a bucket's layers, which come from the last to the first.
  struct Reduction {
    std::vector<At> units;
    BlockId block;
    bool completes;  // whether the units' gradients of the step are complete with it
  };
  // Reduces the gradients of the first `units` units that wait.
  void reduce_first(std::int32_t units) {
    Reduction r{{waiting_.begin(), waiting_.begin() + units}, -1, false};
    waiting_.erase(waiting_.begin(), waiting_.begin() + units);
    const Unit unit = r.units.front().unit;
    r.block = units == 1 ? blocks_.reduce[unit] : blocks_.buckets[unit].reduce.at(units);
    const ChunkEnd& end = chunk_ends_[static_cast<std::size_t>(chunk_)];
    r.completes = slot_ == (is_layer(unit) ? end.weight : end.input);
    if (reduces_beside(scenario_))
      reduce(r);
    else
      reduced_last_.push_back(r);
  }
  void reduce(const Reduction& r) {
    collective(r.block, Phase::backward, r.units.back().layer);
    for (const At& u : r.units) {
      if (!r.completes) continue;
      collective(blocks_.reduce_replicas[u.unit], Phase::backward, u.layer);
      collective(blocks_.reduce_directions[u.unit], Phase::backward, u.layer);
    }
  }

  // Noise is measured on one device, which runs all passes, with whole backward passes. So the gradients are
  // those of the first micro-batch until the next backward pass.
  void add_first_squares() {
    for_each_unit([&](const At& u) { compute(blocks_.first_squares[u.unit], Phase::backward, u.layer); });
  }

  // ---- After the last slot.

  void optimizer() {
    for (const Reduction& r : reduced_last_) reduce(r);
    for_each_unit([&](const At& u) {
      if (u.unit == Unit::embedding && defers_embedding(scenario_))
        reduce({{u}, blocks_.reduce[Unit::embedding], true});
    });
    Waits waits{last_collective_};
    for (const OnceStep& o : steps_before_update(blocks_)) {
      if (o.at_an_end && stage_ > 0 && stage_ < schedule_.stages - 1) continue;
      if (o.units)
        for_each_unit([&](const At& u) { compute((*o.units)[u.unit], Phase::optimizer, u.layer); });
      else
        compute(o.block, Phase::optimizer, 0, std::exchange(waits, {}));
    }
    for_each_unit([&](const At& u) {
      const std::int32_t updated = update(u);
      if (gathers_ahead(scenario_)) return;
      const std::int32_t gather = collective(blocks_.gather_updated[u.unit], Phase::optimizer, u.layer);
      if (gather >= 0) program_.actions[static_cast<std::size_t>(gather)].wait = updated;
    });
  }
  // Updates a unit: on the device, or on the host between two copies.
  std::int32_t update(const At& u) {
    const BlockId block = blocks_.update[u.unit], out = blocks_.gradients_to_host[u.unit];
    if (block < 0) return last_compute_;
    if (out < 0) {
      compute(block, Phase::optimizer, u.layer);
      return last_compute_;
    }
    const std::int32_t gradients = add(out, Phase::optimizer, u.layer, kToHostStream, last_compute_);
    const std::int32_t host = add(block, Phase::optimizer, u.layer, kHostStream, gradients);
    return add(blocks_.parameters_from_host[u.unit], Phase::optimizer, u.layer, kFromHostStream, host);
  }

  // A chunk's last slots that make gradients: of inputs, and of weights.
  struct ChunkEnd {
    std::size_t input = 0, weight = 0;
  };

  const Scenario& scenario_;
  const Strategy& strategy_;
  const StepBlocks& blocks_;
  const Schedule& schedule_;
  const std::vector<Slot>& slots_;
  std::int32_t stage_, layers_;
  Variables variables_;
  Pieces pieces_;  // of the model
  std::vector<ChunkEnd> chunk_ends_;
  Program program_;
  // The pass at hand: its steps; units that read parameters, in order, and what gathers and fetches these.
  std::vector<UnitStep> steps_;
  std::vector<At> readers_;
  std::vector<std::int32_t> gathered_, fetched_;
  std::size_t next_reader_ = 0;
  std::vector<At> waiting_;  // units whose gradients go with a message to come
  std::vector<Reduction> reduced_last_;
  std::map<std::int32_t, std::int32_t> gathered_ahead_;  // actions by unit, until they have been waited for
  std::set<std::int32_t> begun_;                         // units whose gradients have been begun
  std::deque<std::pair<At, std::int32_t>> left_;  // layers not yet copied to the host, and what computed them
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> on_host_;  // by layer and micro-batch
  std::int32_t last_to_host_ = -1;
  std::size_t slot_ = 0;
  std::int32_t micro_batch_ = 0, chunk_ = 0;               // of the slot
  std::int32_t last_compute_ = -1, last_collective_ = -1;  // indices of actions
};

}  // namespace

Program stage_program(const Scenario& scenario, const StepBlocks& blocks, const Schedule& schedule,
                      std::int32_t stage) {
  return StageWriter(scenario, blocks, schedule, stage).write();
}

}  // namespace sim
