#include "sim/plan/stage_program.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "sim/plan/layer_division.h"

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
    if (gathers_ahead())
      for_each_unit([&](const At& u) {
        gathered_ahead_[key(u)] = collective(u.of(blocks_.gather_updated), Phase::optimizer, u.layer);
      });
    if (!fresh_gradients())
      for_each_unit([&](const At& u) { compute(u.of(blocks_.zero), Phase::optimizer, u.layer); });
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
    BlockId of(const UnitBlocks& blocks) const { return blocks[unit]; }
    bool is_layer() const { return sim::is_layer(unit); }
  };
  At layer_unit(std::int32_t layer) const { return {kind_of_layer(scenario_, layer).unit(), layer}; }
  // A unit among the stage's: a layer's number, or one after the last two.
  std::int32_t key(const At& u) const {
    return u.is_layer() ? u.layer : u.unit == Unit::embedding ? -1 : layers_;
  }
  const LayerBlocks& layer_blocks(std::int32_t layer) const {
    const LayerKind kind = kind_of_layer(scenario_, layer);
    const auto at = std::find(blocks_.kinds.begin(), blocks_.kinds.end(), kind) - blocks_.kinds.begin();
    return blocks_.layers[static_cast<std::size_t>(at)];
  }

  std::int32_t piece() const { return schedule_.piece(stage_, chunk_); }
  LayerRange range() const { return layers_of(scenario_, piece()); }
  bool is_first() const { return piece() == 0; }
  bool is_last() const { return piece() == schedule_.pieces() - 1; }
  RecomputePlace place(std::int32_t layer) const {
    return recompute_place(strategy_, layer, range().first, range().last);
  }

  template <class Visit>
  void for_each_unit(Visit visit) const {
    for (std::int32_t chunk = 0; chunk < schedule_.chunks; ++chunk) {
      const std::int32_t p = schedule_.piece(stage_, chunk);
      const LayerRange layers = layers_of(scenario_, p);
      if (p == 0) visit(At{Unit::embedding, 0});
      for (std::int32_t l = layers.first; l < layers.last; ++l) visit(layer_unit(l));
      if (p == schedule_.pieces() - 1) visit(At{Unit::head, layers_});
    }
  }

  // Parameters that the optimizer of the step before updated are gathered beside the first forward pass.
  bool gathers_ahead() const {
    return scenario_.implementation.data_parallel.overlaps_gather &&
           (strategy_.zero_stage == 1 || strategy_.zero_stage == 2);
  }
  // Gradients are begun by the first backward pass, not set to zero before.
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
  void compute(BlockId block, Phase phase, std::int32_t layer, std::int32_t wait = -1,
               std::int32_t wait_also = -1) {
    if (block < 0) return;
    last_compute_ = add(block, phase, layer, kComputeStream, wait);
    program_.actions.back().wait_also = wait_also;
  }
  // A collective that begins when what has been computed so far is there.
  std::int32_t collective(BlockId block, Phase phase, std::int32_t layer) {
    if (block < 0) return -1;
    return last_collective_ = add(block, phase, layer, kCollectiveStream, last_compute_);
  }

  // ---- What other stages send and receive.

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
    switch (pass) {
      case Pass::forward:
        return forward();
      case Pass::backward:
        return backward(&LayerBlocks::backward);
      case Pass::backward_input:
        return backward(&LayerBlocks::backward_input);
      case Pass::backward_weight:
        for (std::int32_t l = range().last; l-- > range().first;) {
          compute(layer_blocks(l).weight, Phase::backward, l);
          reduce(layer_unit(l));
        }
        flush_bucket();
        return;
    }
  }

  // A block run for a unit; the first that reads the unit's parameters in a pass waits for them.
  struct Step {
    At unit;
    BlockId block;
    Phase phase;
    bool reads_parameters_first = true;
  };

  // Under ZeRO 3 parameters are gathered while the steps before compute, as many units ahead as the strategy
  // says.
  template <class Around>
  void run(const std::vector<Step>& steps, const UnitBlocks& gather, Phase phase, Around around) {
    std::vector<std::size_t> users;  // steps
    for (std::size_t i = 0; i < steps.size(); ++i)
      if (steps[i].reads_parameters_first) users.push_back(i);
    std::vector<std::int32_t> gathered, fetched;
    std::size_t user = 0;
    const auto ahead = static_cast<std::size_t>(strategy_.prefetch);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Step& s = steps[i];
      std::int32_t wait = -1, wait_also = -1;
      if (s.reads_parameters_first) {
        while (phase == Phase::backward && fetched.size() < users.size() && fetched.size() <= user + 1)
          fetched.push_back(fetch(steps[users[fetched.size()]].unit));
        if (phase == Phase::backward) wait_also = fetched[user];
        while (gathered.size() < users.size() && gathered.size() <= user + ahead) {
          const At& u = steps[users[gathered.size()]].unit;
          gathered.push_back(collective(u.of(gather), phase, u.layer));
        }
        wait = gathered[user++];
        if (const auto ahead_of_step = gathered_ahead_.find(key(s.unit));
            wait < 0 && phase == Phase::forward && ahead_of_step != gathered_ahead_.end()) {
          wait = ahead_of_step->second;
          gathered_ahead_.erase(ahead_of_step);
        }
      }
      if (phase == Phase::forward) wait_also = room_for_another();
      around(s, [&] { compute(s.block, s.phase, s.unit.layer, wait, wait_also); });
    }
  }

  // ---- Activations that wait in the host's memory.

  bool waits_on_host(const At& u) const {
    return u.is_layer() && layer_blocks(u.layer).to_host >= 0 && place(u.layer).first;
  }
  // What a layer leaves is copied while the next one computes; no more than two layers' is there at a time.
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

  void forward() {
    std::vector<Step> steps;
    if (is_first()) steps.push_back({{Unit::embedding, 0}, blocks_.embedding, Phase::forward});
    for (std::int32_t l = range().first; l < range().last; ++l)
      steps.push_back({layer_unit(l), layer_blocks(l).forward.at(place(l)), Phase::forward});
    if (is_last()) steps.push_back({{Unit::head, layers_}, blocks_.head, Phase::forward});
    run(steps, blocks_.gather_for_forward, Phase::forward, [this](const Step& s, auto compute_step) {
      compute_step();
      to_host(s.unit);
    });
    while (!left_.empty()) copy_to_host();
  }

  // From the last layer to the first; those that are recomputed from one kept input first run forward again.
  void backward(PlacedBlocks LayerBlocks::*of_layer) {
    std::vector<Step> steps;
    if (is_last()) steps.push_back({{Unit::head, layers_}, blocks_.head_backward, Phase::backward});
    for (std::int32_t end = range().last; end > range().first;) {
      std::int32_t begin = end - 1;
      while (!place(begin).first) --begin;
      const auto recompute = [&](std::int32_t l) { return layer_blocks(l).recompute.at(place(l)); };
      for (std::int32_t l = begin; l < end; ++l)
        if (recompute(l) >= 0) steps.push_back({layer_unit(l), recompute(l), Phase::recompute});
      for (std::int32_t l = end; l-- > begin;)
        steps.push_back(
            {layer_unit(l), (layer_blocks(l).*of_layer).at(place(l)), Phase::backward, recompute(l) < 0});
      end = begin;
    }
    if (is_first()) steps.push_back({{Unit::embedding, 0}, blocks_.embedding_backward, Phase::backward});
    run(steps, blocks_.gather_for_backward, Phase::backward, [&](const Step& s, auto compute_step) {
      if (s.phase == Phase::backward && fresh_gradients() && begun_.insert(key(s.unit)).second)
        compute(s.unit.of(blocks_.zero), Phase::backward, s.unit.layer);
      if (s.phase == Phase::backward) compute(s.unit.of(blocks_.zero_whole), Phase::backward, s.unit.layer);
      compute_step();
      const bool has_weights = !s.unit.is_layer() || of_layer == &LayerBlocks::backward;
      if (s.phase == Phase::backward && has_weights) reduce(s.unit);
    });
    flush_bucket();
  }

  // ---- Gradients.

  // A chunk's gradients are complete with its last pass; embedding and head have no part of weights of their
  // own.
  bool is_complete(const At& u) const {
    const ChunkEnd& end = chunk_ends_[static_cast<std::size_t>(chunk_)];
    return slot_ == (u.is_layer() ? end.weight : end.input);
  }
  // Of a tied head that micro-batches of the other direction use, too.
  bool is_deferred(const At& u) const {
    return u.unit == Unit::embedding && scenario_.model.tie_word_embeddings &&
           schedule_.placement == Placement::two_directions;
  }

  // One message: a unit's, or that of the layers of a bucket, which come from the last to the first.
  struct Reduction {
    std::vector<At> units;
    BlockId block;
  };

  // From ZeRO 2 on no micro-batch waits for the others.
  void reduce(const At& u) {
    if (is_deferred(u) || (strategy_.zero_stage < 2 && !is_complete(u))) return;
    if (!bucket_.empty() && bucket_.back().unit != u.unit) flush_bucket();
    const std::int32_t most = u.is_layer() ? bucket_of(u).layers : 1;
    if (most == 1) return reduce(Reduction{{u}, u.of(blocks_.reduce)});
    bucket_.push_back(u);
    if (static_cast<std::int32_t>(bucket_.size()) == most) flush_bucket();
  }
  const BucketBlocks& bucket_of(const At& u) const { return blocks_.buckets[u.unit]; }
  void flush_bucket() {
    if (bucket_.empty()) return;
    const BlockId block = bucket_of(bucket_.back()).reduce.at(static_cast<std::int32_t>(bucket_.size()));
    reduce(Reduction{std::exchange(bucket_, {}), block});
  }
  // Beside the backward pass where the implementation does so, else after it.
  void reduce(Reduction r) {
    const DataParallelProfile& software = scenario_.implementation.data_parallel;
    const bool beside =
        strategy_.zero_stage == 1 ? software.overlaps_sharded_reduction : software.overlaps_reduction;
    if (beside || strategy_.zero_stage >= 2)
      reduce_now(r);
    else
      reduced_last_.push_back(std::move(r));
  }
  void reduce_now(const Reduction& r) {
    collective(r.block, Phase::backward, r.units.back().layer);
    for (const At& u : r.units) {
      if (slot_ < slots_.size() && !is_complete(u)) continue;
      collective(u.of(blocks_.reduce_replicas), Phase::backward, u.layer);
      collective(u.of(blocks_.reduce_directions), Phase::backward, u.layer);
    }
  }

  // ---- After the last slot.

  void optimizer() {
    for (const Reduction& r : reduced_last_) reduce_now(r);
    for_each_unit([&](const At& u) {
      if (is_deferred(u)) reduce_now({{u}, u.of(blocks_.reduce)});
    });
    compute(blocks_.zero_norm, Phase::optimizer, 0, last_collective_);
    if (stage_ == 0 || stage_ == schedule_.stages - 1)
      compute(blocks_.sum_tied_embedding, Phase::optimizer, 0);
    for_each_unit([&](const At& u) { compute(u.of(blocks_.unscale), Phase::optimizer, u.layer); });
    compute(blocks_.read_overflow, Phase::optimizer, 0);
    for_each_unit([&](const At& u) { compute(u.of(blocks_.norm), Phase::optimizer, u.layer); });
    compute(blocks_.sum_norm, Phase::optimizer, 0);
    compute(blocks_.clip, Phase::optimizer, 0);
    for_each_unit([&](const At& u) {
      const std::int32_t updated = update(u);
      if (gathers_ahead()) return;
      const std::int32_t gather = collective(u.of(blocks_.gather_updated), Phase::optimizer, u.layer);
      if (gather >= 0) program_.actions[static_cast<std::size_t>(gather)].wait = updated;
    });
  }
  // On the device, or on the host between two copies.
  std::int32_t update(const At& u) {
    const BlockId block = u.of(blocks_.update), out = u.of(blocks_.gradients_to_host);
    if (block < 0) return last_compute_;
    if (out < 0) {
      compute(block, Phase::optimizer, u.layer);
      return last_compute_;
    }
    const std::int32_t gradients = add(out, Phase::optimizer, u.layer, kToHostStream, last_compute_);
    const std::int32_t host = add(block, Phase::optimizer, u.layer, kHostStream, gradients);
    return add(u.of(blocks_.parameters_from_host), Phase::optimizer, u.layer, kFromHostStream, host);
  }

  // A chunk's last slots that give gradients: of inputs, of weights.
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
  std::vector<ChunkEnd> chunk_ends_;
  Program program_;
  std::vector<At> bucket_;
  std::vector<Reduction> reduced_last_;
  std::map<std::int32_t, std::int32_t> gathered_ahead_;  // actions by unit, until they have been waited for
  std::set<std::int32_t> begun_;                         // units whose gradients are
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
