#include "app/lesson/film.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "sim/cost/step_detail.h"
#include "sim/format.h"
#include "sim/report/metrics.h"
#include "sim/serving/scheduler.h"

namespace app::lesson {
namespace {

constexpr std::size_t kMemoryPoints = 400;
constexpr std::int64_t kMostBlocks = 160, kMostSequences = 32;
constexpr std::size_t kMostSlots = 6000;
constexpr std::int64_t kDefaultBlock = 16;  // tokens, as vLLM has them (serving_implementation.h)

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
    film.spans.push_back({stage ? 0 : static_cast<std::size_t>(slot.stage), slot.start.value, slot.end.value,
                          optimizer ? -1 : slot.micro_batch, slot.phase == sim::Phase::backward,
                          pass_of(slot)});
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
  film.title = "Memory of a device over a step";
}

void fill_pipeline(Film& film, const sim::Scenario& scenario, const sim::Calibration* calibration) {
  const int stages = scenario.strategy.pipeline_parallel;
  need(stages > 1, "Micro-batches walk through stages where strategy.pipeline_parallel is 2 or more.");
  const sim::StepDetail detail = detail_of(scenario, calibration);
  need(detail.slots.size() <= kMostSlots,
       fmt::format("A picture has at most {} passes; this step has {}.", kMostSlots, detail.slots.size()));
  for (int stage = 0; stage < stages; ++stage) film.rows.push_back(fmt::format("stage {}", stage));
  add_slots(film, detail.slots, std::nullopt);
  film.title = fmt::format("{} micro-batches through {} stages", film.holders, stages);
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

// As the scheduler of an engine gives blocks away: twice as many requests as sequences run at a time, their
// answers of four lengths.
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
  }
  return {};
}

Film make_film(FilmKind kind, const sim::Scenario& scenario, const sim::Report& report,
               const sim::Calibration* calibration) {
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
  }
  for (const Film::Span& span : film.spans) film.end = std::max(film.end, span.end);
  if (!film.levels.empty()) film.end = std::max(film.end, film.levels.back().time.value);
  return film;
}

}  // namespace app::lesson
