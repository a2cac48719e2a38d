#include "app/lesson/film.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <utility>

#include "runtime/attention_tile.h"
#include "sim/cost/step_detail.h"
#include "sim/format.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"
#include "sim/serving/scheduler.h"

namespace app::lesson {
namespace {

constexpr std::size_t kMemoryPoints = 400;
constexpr std::int64_t kMostBlocks = 160, kMostSequences = 32;
constexpr std::size_t kMostSlots = 6000;
constexpr std::int64_t kDefaultBlock = 16;  // in tokens; vLLM's default (serving_implementation.h)

void need(bool condition, const std::string& else_says) {
  if (!condition) throw std::invalid_argument(else_says);
}

std::string pass_of(const sim::TimelineSlot& slot) {
  if (slot.phase == sim::Phase::optimizer) return "optimizer";
  const char* const pass = slot.phase == sim::Phase::forward ? "forward"
                           : slot.weights && !slot.inputs    ? "backward of weights"
                                                             : "backward";
  return fmt::format("{} of micro-batch {}", pass, slot.micro_batch);
}

void add_slots(Film& film, const std::vector<sim::TimelineSlot>& slots, std::optional<int> stage) {
  for (const sim::TimelineSlot& slot : slots) {
    if (stage && slot.stage != *stage) continue;
    const bool optimizer = slot.phase == sim::Phase::optimizer;
    const std::size_t row = stage ? 0 : static_cast<std::size_t>(slot.stage);
    // The optimizer's phase before all passes is no update yet: it sets gradients to zero.
    const bool begins =
        optimizer && std::ranges::none_of(film.spans, [&](const Film::Span& s) { return s.row == row; });
    if (begins && !stage) continue;  // a picture of micro-batches omits it
    film.spans.push_back({row, slot.start.value, slot.end.value, optimizer ? -1 : slot.micro_batch,
                          slot.phase == sim::Phase::backward, begins ? "the step begins" : pass_of(slot)});
    film.holders = std::max(film.holders, slot.micro_batch + 1);
  }
}

sim::StepDetail detail_of(const sim::Scenario& scenario, const sim::Calibration* calibration) {
  need(scenario.workload.task == sim::Task::train, "This picture is of a training step.");
  return sim::step_detail(sim::make_plan(scenario), scenario.hardware, calibration, kMemoryPoints);
}

double bytes_of(const sim::MemoryTimePoint& point) {
  return static_cast<double>(sim::total(point.bytes).value);
}

void fill_memory(Film& film, const sim::Scenario& scenario, const sim::Calibration* calibration) {
  sim::StepDetail detail = detail_of(scenario, calibration);
  need(!detail.memory.empty(), "This scenario's memory has no course over a step.");
  std::size_t fullest = 0;
  double most = 0;
  for (std::size_t stage = 0; stage < detail.memory.size(); ++stage)
    for (const sim::MemoryTimePoint& point : detail.memory[stage])
      if (bytes_of(point) > most) {
        most = bytes_of(point);
        fullest = stage;
      }
  film.levels = std::move(detail.memory[fullest]);
  film.rows = {detail.memory.size() == 1 ? "device" : fmt::format("stage {}", fullest)};
  add_slots(film, detail.slots, static_cast<int>(fullest));
  film.title = "Memory of a device over a step; beneath, the passes of micro-batches, backward darker";
}

void fill_pipeline(Film& film, const sim::Scenario& scenario, const sim::Calibration* calibration) {
  const int stages = scenario.strategy.pipeline_parallel;
  need(stages > 1, "Micro-batches walk through stages where strategy.pipeline_parallel is 2 or more.");
  const sim::StepDetail detail = detail_of(scenario, calibration);
  need(detail.slots.size() <= kMostSlots,
       fmt::format("A picture has at most {} passes; this step has {}.", kMostSlots, detail.slots.size()));
  for (int stage = 0; stage < stages; ++stage) film.rows.push_back(fmt::format("stage {}", stage));
  add_slots(film, detail.slots, std::nullopt);
  film.title = fmt::format("{} micro-batches through {} stages, backward darker", film.holders, stages);
}

// A layer's forward pass: rank r computes with the keys and values of rank r - k in step k, while they travel
// on to its neighbour.
void fill_ring(Film& film, const sim::Scenario& scenario, const sim::Report& report) {
  const int ranks = scenario.strategy.context_parallel;
  need(ranks > 1, "Keys and values go round where strategy.context_parallel is 2 or more.");
  const auto seconds_of = [&](int step, const char* what) {
    const std::string id = fmt::format("layer.attention.ring_{}{}.forward", step, what);
    const auto row = std::ranges::find_if(report.rows, [&](const sim::Row& r) {
      return r.rank == 0 && r.phase == sim::Phase::forward && r.id == id;
    });
    return row == report.rows.end()
               ? 0
               : row->duration.value / static_cast<double>(std::max<std::int64_t>(row->count, 1));
  };
  for (int rank = 0; rank < ranks; ++rank) film.rows.push_back(fmt::format("rank {}", rank));
  std::vector<double> begins = {0};
  for (int step = 0; step < ranks; ++step)
    begins.push_back(begins.back() + std::max(seconds_of(step, ""),
                                              step + 1 < ranks ? seconds_of(step + 1, ".exchange") : 0));
  need(begins.back() > 0, "Keys and values go round where strategy.context_parallel_comm is ring.");
  for (int rank = 0; rank < ranks; ++rank)
    for (int step = 0; step < ranks; ++step) {
      const int shard = (rank - step + ranks) % ranks;
      film.spans.push_back({static_cast<std::size_t>(rank), begins[static_cast<std::size_t>(step)],
                            begins[static_cast<std::size_t>(step) + 1], shard, false,
                            fmt::format("keys and values of rank {}", shard)});
    }
  film.holders = ranks;
  film.title = fmt::format("Keys and values go round {} ranks, in one layer", ranks);
}

// Shows how the scheduler of an engine gives blocks away. There are twice as many requests as sequences run
// at a time, and their answers have four lengths.
void fill_cache(Film& film, const sim::Scenario& scenario, const sim::Report& report) {
  const sim::Workload& w = scenario.workload;
  need(w.task == sim::Task::generate && w.kv_cache,
       "Blocks are taken and freed by a generation with a KV cache.");
  const std::int64_t block = w.kv_block > 0 ? w.kv_block : kDefaultBlock;
  const std::int64_t each = (w.prompt_length + w.max_new_tokens + block - 1) / block;
  const std::int64_t blocks = each * w.batch_size;
  need(w.batch_size <= kMostSequences && blocks <= kMostBlocks,
       fmt::format("A picture has at most {} sequences and {} blocks; here are {} and {}.", kMostSequences,
                   kMostBlocks, w.batch_size, blocks));
  sim::SchedulerLimits limits;
  limits.max_sequences = w.batch_size;
  limits.max_tokens = w.batch_size * (w.prompt_length + 1);
  limits.block_tokens = block;
  limits.blocks = blocks;
  sim::Scheduler scheduler(limits);
  constexpr std::int64_t kLengths = 4;
  film.holders = static_cast<int>(2 * w.batch_size);
  for (std::int64_t i = 0; i < film.holders; ++i)
    scheduler.submit(
        {w.prompt_length, std::max<std::int64_t>(1, w.max_new_tokens * (i * 3 % kLengths + 1) / kLengths)});
  const double token = sim::tpot(report).value_or(sim::Seconds{1}).value;
  const double prompt =
      sim::ttft(report).value_or(sim::Seconds{token}).value / static_cast<double>(w.batch_size);
  for (std::int64_t i = 0; i < blocks; ++i) film.rows.push_back(fmt::format("block {}", i));
  std::vector<int> holder(static_cast<std::size_t>(blocks), -1);
  std::vector<double> since(static_cast<std::size_t>(blocks), 0);
  double now = 0;
  std::vector<bool> ended(static_cast<std::size_t>(film.holders), false);
  const auto look = [&] {
    std::vector<int> seen(static_cast<std::size_t>(blocks), -1);
    for (int r = 0; r < film.holders; ++r)
      if (!ended[static_cast<std::size_t>(r)])
        for (const sim::BlockIndex b : scheduler.blocks_of(r)) seen[static_cast<std::size_t>(b)] = r;
    for (std::size_t b = 0; b < seen.size(); ++b) {
      if (seen[b] == holder[b]) continue;
      if (holder[b] >= 0)
        film.spans.push_back({b, since[b], now, holder[b], false, fmt::format("sequence {}", holder[b])});
      holder[b] = seen[b];
      since[b] = now;
    }
  };
  while (!scheduler.idle()) {
    const sim::Scheduler::Step& step = scheduler.next();
    if (step.empty()) break;
    look();
    now += prompt * static_cast<double>(step.prompts.size()) + (step.decodes.empty() ? 0 : token);
    for (const sim::RequestIndex r : scheduler.complete()) ended[static_cast<std::size_t>(r)] = true;
  }
  look();
  std::ranges::sort(film.spans, {}, [](const Film::Span& s) { return std::pair(s.row, s.start); });
  film.title = fmt::format("{} blocks of {} tokens, {} sequences at a time", blocks, block, w.batch_size);
}

// Seconds of one execution of the first rank's forward operations whose names begin with these; 0: none do.
double forward_seconds(const sim::Report& report, std::initializer_list<std::string_view> names) {
  double seconds = 0;
  for (const sim::Row& row : report.rows)
    for (const std::string_view name : names)
      if (row.rank == 0 && row.phase == sim::Phase::forward && row.id.starts_with(name) &&
          row.id.ends_with(".forward"))
        seconds += row.duration.value / static_cast<double>(std::max<std::int64_t>(row.count, 1));
  return seconds;
}

// Arbitrary numbers, the same in every picture (Steele, Vigna 2022, a 64-bit multiplier of their table 4).
class Draws {
 public:
  double next() {  // from 0 to 1
    state_ = state_ * 0xd1342543de82ef95u + 1;
    return static_cast<double>(state_ >> 11) * 0x1p-53;
  }

 private:
  std::uint64_t state_ = 2026;
};

std::string experts_of(std::int64_t first, std::int64_t count) {
  return count == 1 ? fmt::format("expert {}", first)
                    : fmt::format("experts {} to {}", first, first + count - 1);
}

// A layer's forward pass: tokens go to the devices of their experts, are computed with there, and go back. A
// few tokens of each device are drawn; the busiest device has as many as the workload's imbalance says.
void fill_experts(Film& film, const sim::Scenario& scenario, const sim::Report& report) {
  constexpr int kMostDevices = 16, kTokens = 8;
  const int devices = scenario.strategy.expert_parallel;
  const sim::MixtureOfExperts& moe = scenario.model.moe;
  need(moe.num_experts > 0, "Tokens have experts where the model is a mixture of them, as mixtral-8x7b.");
  need(devices > 1 && devices <= kMostDevices,
       fmt::format("Tokens travel where strategy.expert_parallel is 2 to {}.", kMostDevices));
  const double out = forward_seconds(report, {"layer.experts.dispatch"}),
               work = forward_seconds(report, {"layer.experts.gate_up", "layer.experts.up",
                                               "layer.experts.activation", "layer.experts.down"}),
               back = forward_seconds(report, {"layer.experts.combine"});
  need(out > 0 && work > 0, "The step's plan has no experts that tokens travel to.");
  const auto count = static_cast<std::size_t>(devices);
  const std::size_t all = count * kTokens * static_cast<std::size_t>(moe.num_experts_per_tok);
  const double mean = static_cast<double>(all) / devices;
  const std::size_t busiest = count / 2;
  std::vector<std::size_t> load(count, 0);
  load[busiest] = std::min(all, static_cast<std::size_t>(mean * scenario.workload.expert_imbalance + .5));
  for (std::size_t given = load[busiest], d = 0; given < all; d = (d + 1) % count)
    if (d != busiest) {
      ++load[d];
      ++given;
    }
  // Places in any order: each device appears as often as its load says.
  std::vector<std::size_t> places;
  for (std::size_t d = 0; d < count; ++d) places.insert(places.end(), load[d], d);
  Draws draws;
  for (std::size_t i = places.size(); i > 1; --i)
    std::swap(places[i - 1], places[static_cast<std::size_t>(draws.next() * static_cast<double>(i))]);
  const std::int64_t each = moe.num_experts / devices;
  const std::size_t most = *std::ranges::max_element(load);
  for (std::size_t d = 0; d < count; ++d) {
    film.rows.push_back(fmt::format("device {}", d));
    const double share = static_cast<double>(load[d]) / static_cast<double>(most);
    film.spans.push_back({d, out, out + work * share, static_cast<int>(d), false,
                          fmt::format("{:.2f} of the mean load, {}", static_cast<double>(load[d]) / mean,
                                      experts_of(static_cast<std::int64_t>(d) * each, each))});
  }
  for (std::size_t i = 0; i < all; ++i) {
    const std::size_t home = i / (kTokens * static_cast<std::size_t>(moe.num_experts_per_tok));
    film.flights.push_back({home, places[i], 0, out});
    film.flights.push_back({places[i], home, out + work, out + work + back});
  }
  film.end = out + work + back;
  film.holders = devices;
  film.title = fmt::format("{} of {} experts for each token, on {} devices, in one layer",
                           moe.num_experts_per_tok, moe.num_experts, devices);
}

// Rounds of proposals and their verification. A pass over n + 1 tokens of one sequence is taken to last as
// long as one over a token each of n + 1 sequences: the rows are as many, and each reads the cache.
void fill_draft(Film& film, const sim::Scenario& scenario, const sim::Report& report,
                const std::string& draft, const PredictOther& predict) {
  constexpr int kRounds = 8;
  need(scenario.workload.task == sim::Task::generate, "Tokens are proposed in a generation.");
  const auto token = [](const sim::Report& of) { return sim::tpot(of).value_or(sim::Seconds{}).value; };
  sim::Scenario wider = scenario, smaller = scenario;
  wider.workload.batch_size *= kProposals + 1;
  smaller.model = sim::load_model_preset(draft);
  const double proposal = token(predict(smaller)), verified = token(predict(wider));
  film.plain_token = token(report);
  need(film.plain_token > 0 && proposal > 0, "A generation of two tokens and more has proposals.");
  film.rows = {draft, scenario.model.name};
  std::vector<Film::Span> verifications;
  Draws draws;
  double now = 0;
  for (int round = 0; round < kRounds; ++round) {
    int accepted = 0;
    while (accepted < kProposals && draws.next() < kAccepted) ++accepted;
    for (int i = 0; i < kProposals; ++i, now += proposal)
      film.spans.push_back({0, now, now + proposal, i, i >= accepted,
                            fmt::format("{} proposes token {} of {}", draft, i + 1, kProposals)});
    verifications.push_back(
        {1, now, now + verified, kProposals, false,
         fmt::format("{} verifies: {} of {} accepted", scenario.model.name, accepted, kProposals)});
    now += verified;
    for (int i = 0; i < accepted; ++i) film.written.push_back({now, true});
    film.written.push_back({now, false});
  }
  film.spans.insert(film.spans.end(), verifications.begin(), verifications.end());
  film.holders = kProposals + 1;
  film.title =
      fmt::format("{} proposals a round, {} accepted on average", kProposals, sim::format_percent(kAccepted));
}

// One head's causal attention: tiles of queries are worked on side by side, each going over the tiles of keys
// before it, with the tiles of the CPU's kernels. Scores are drawn from a normal distribution;
// one query of each tile is followed.
void fill_tiles(Film& film, const sim::Scenario& scenario, const sim::Report& report) {
  constexpr std::int64_t kMostTiles = 32;
  const std::int64_t length = scenario.workload.seq_len, tile = runtime::attention_tile();
  need(scenario.workload.task == sim::Task::train &&
           scenario.implementation.attention == sim::AttentionKind::flash,
       "Tiles are of training with flash attention: implementation.attention is flash.");
  const std::int64_t tiles = (length + tile - 1) / tile;
  need(tiles >= 2 && tiles <= kMostTiles,
       fmt::format("A picture has 2 to {} tiles of {} tokens; {} tokens are {}.", kMostTiles, tile, length,
                   tiles));
  const double all = forward_seconds(report, {"layer.attention.flash"});
  need(all > 0, "The step's plan has no flash attention.");
  const double each = all / static_cast<double>(tiles);
  Draws draws;
  const auto normal = [&draws] {  // Box, Muller 1958
    const double radius = std::sqrt(-2 * std::log(1 - draws.next()));
    return radius * std::cos(2 * std::numbers::pi * draws.next());
  };
  for (std::int64_t q = 0; q < tiles; ++q) {
    film.rows.push_back(fmt::format("queries {} to {}", q * tile, std::min(length, (q + 1) * tile) - 1));
    std::vector<double>& scores = film.scores.emplace_back();
    Film::Softmax kept{-std::numeric_limits<double>::infinity(), 0, 0};
    for (std::int64_t k = 0; k <= q; ++k) {
      const auto from = static_cast<std::ptrdiff_t>(scores.size());
      const std::int64_t keys = std::min(tile, length - k * tile);
      for (std::int64_t i = 0; i < keys; ++i) scores.push_back(normal());
      const double most = std::max(kept.maximum, *std::max_element(scores.begin() + from, scores.end()));
      kept.factor = std::exp(kept.maximum - most);
      kept.sum *= kept.factor;
      for (auto score = scores.begin() + from; score != scores.end(); ++score)
        kept.sum += std::exp(*score - most);
      kept.maximum = most;
      film.softmax.push_back(kept);
      film.spans.push_back({static_cast<std::size_t>(q), static_cast<double>(k) * each,
                            static_cast<double>(k + 1) * each, static_cast<int>(k), false,
                            fmt::format("keys {} to {}", k * tile, k * tile + keys - 1)});
    }
  }
  film.holders = static_cast<int>(tiles);
  film.table_bytes = static_cast<double>(length) * static_cast<double>(length) * 2;
  film.title = fmt::format("Scores of one head, {} queries by as many keys in tiles of {}; bars: rows' sums",
                           sim::format_count(length), tile);
}

}  // namespace

std::optional<FilmKind> film_kind_from_name(std::string_view name) {
  const auto found = std::ranges::find(kFilmNames, name);
  if (found == std::end(kFilmNames)) return std::nullopt;
  return static_cast<FilmKind>(found - std::begin(kFilmNames));
}

const Film::Span* Film::at(std::size_t row, double time) const {
  const auto after = std::partition_point(spans.begin(), spans.end(), [&](const Span& s) {
    return s.row < row || (s.row == row && s.start <= time);
  });
  if (after == spans.begin()) return nullptr;
  const Span& span = *std::prev(after);
  return span.row == row && time < span.end ? &span : nullptr;
}

const sim::MemoryTimePoint& Film::level_at(double time) const {
  const auto after = std::partition_point(
      levels.begin(), levels.end(), [&](const sim::MemoryTimePoint& p) { return p.time.value <= time; });
  return after == levels.begin() ? levels.front() : *std::prev(after);
}

std::string Film::says(double time) const {
  std::size_t busy = 0;
  std::vector<bool> seen(static_cast<std::size_t>(std::max(holders, 1)), false);
  for (std::size_t row = 0; row < rows.size(); ++row)
    if (const Span* span = at(row, time)) {
      ++busy;
      if (span->of >= 0) seen[static_cast<std::size_t>(span->of)] = true;
    }
  const auto different = std::ranges::count(seen, true);
  switch (kind) {
    case FilmKind::memory: {
      const sim::MemoryTimePoint& level = level_at(time);
      const Span* const span = at(0, time);
      return fmt::format("{}: {}, of which {} are activations", span ? span->name : "between passes",
                         sim::format(sim::total(level.bytes)),
                         sim::format(level.bytes[static_cast<std::size_t>(sim::BufferClass::activation)]));
    }
    case FilmKind::pipeline:
      return fmt::format("{} of {} stages work, {} wait", busy, rows.size(), rows.size() - busy);
    case FilmKind::ring: {
      const Span* const span = at(0, time);
      return span ? fmt::format("rank 0 computes with the {}; its own travel on", span->name)
                  : std::string("every rank has seen the keys and values of all");
    }
    case FilmKind::cache:
      return fmt::format("{} of {} blocks are taken, by {} sequences", busy, rows.size(), different);
    case FilmKind::experts: {
      if (busy > 0)
        return fmt::format("{} of {} devices compute, {} wait for the busiest", busy, rows.size(),
                           rows.size() - busy);
      const bool out = !spans.empty() && time < spans.front().start;
      return out ? "tokens go to the devices of their experts" : "and back to where they came from";
    }
    case FilmKind::draft: {
      const auto known = std::ranges::count_if(written, [&](const Written& w) { return w.time <= time; });
      const Span* const span = at(0, time) ? at(0, time) : at(1, time);
      return fmt::format("{}; {} tokens are written, without a draft {:.0f}",
                         span ? span->name : "all is verified", known, std::floor(time / plain_token));
    }
    case FilmKind::tiles: {
      const Span* const span = at(rows.size() - 1, time);
      if (!span)
        return fmt::format("done: {} of scores were never stored",
                           sim::format(sim::Bytes{static_cast<std::int64_t>(table_bytes)}));
      const Softmax& kept = softmax[static_cast<std::size_t>(span - spans.data())];
      const std::string rescaled =
          kept.factor > 0 ? fmt::format(" after it was rescaled by {:.2f}", kept.factor) : "";
      return fmt::format("{} rows work on {}; of the last, the largest score is {:.2f}, the sum {:.1f}{}",
                         busy, span->name, kept.maximum, kept.sum, rescaled);
    }
  }
  return {};
}

Film make_film(FilmKind kind, const sim::Scenario& scenario, const sim::Report& report,
               const sim::Calibration* calibration, const std::string& draft, const PredictOther& predict) {
  Film film;
  film.kind = kind;
  switch (kind) {
    case FilmKind::memory:
      fill_memory(film, scenario, calibration);
      break;
    case FilmKind::pipeline:
      fill_pipeline(film, scenario, calibration);
      break;
    case FilmKind::ring:
      fill_ring(film, scenario, report);
      break;
    case FilmKind::cache:
      fill_cache(film, scenario, report);
      break;
    case FilmKind::experts:
      fill_experts(film, scenario, report);
      break;
    case FilmKind::draft:
      fill_draft(film, scenario, report, draft, predict);
      break;
    case FilmKind::tiles:
      fill_tiles(film, scenario, report);
      break;
  }
  for (const Film::Span& span : film.spans) film.end = std::max(film.end, span.end);
  if (!film.levels.empty()) film.end = std::max(film.end, film.levels.back().time.value);
  return film;
}

}  // namespace app::lesson
