#include "runtime/measured.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "sim/cost/price.h"
#include "sim/cost/work.h"
#include "sim/quantile.h"

namespace runtime {

std::vector<sim::Row> rows_with_work(const sim::Plan& plan, const Executor& executor, std::size_t sections) {
  std::vector<sim::Row> rows;
  std::map<std::pair<sim::Phase, std::string>, std::size_t> index;
  for (const RowKey& key : executor.rows()) {
    index[{key.phase, key.id}] = rows.size();
    sim::Row row;
    row.id = key.id;
    row.phase = key.phase;
    row.kind = key.kind;
    row.provenance = sim::Provenance::measured;
    rows.push_back(row);
  }

  const sim::Program& program = executor.program();
  for (std::size_t s = 0; s < sections; ++s) {
    for (std::size_t a = program.sections[s].begin; a < program.sections[s].end; ++a) {
      const sim::Action& action = program.actions[a];
      for (const sim::Operation& operation : plan.blocks[static_cast<std::size_t>(action.block)].operations) {
        const sim::Work work = sim::work_of(plan, operation, action.variables);
        sim::Row& row = rows[index.at({action.phase, operation.id})];
        ++row.count;
        row.flops += work.flops;
        row.model_flops += work.model_flops;
        row.memory += work.memory();
        row.network += work.network;
        // The bound of the last execution: in generation, the one with the longest context.
        row.bound = sim::price(work, operation, action.variables, plan.scenario.hardware, nullptr).bound;
      }
    }
  }
  return rows;
}

void set_medians(std::span<sim::Row> rows, std::span<const std::vector<double>> times) {
  double counted = 0, together = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (times[r].empty()) continue;
    counted += rows[r].duration.value;
    rows[r].duration = {sim::quantile(times[r], 0.5)};
    together += rows[r].duration.value;
  }
  const double scale = together > 0 ? counted / together : 1;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    sim::Row& row = rows[r];
    if (times[r].empty()) continue;
    row.duration = row.duration * scale;
    row.low = std::min(row.low, row.duration);
    row.high = std::max(row.high, row.duration);
  }
}

void set_exposed(std::span<sim::Row> rows) {
  for (sim::Row& row : rows)
    if (sim::info(row.kind).family == sim::Family::communication && row.kind != sim::OpKind::receive)
      row.exposed = row.duration;
}

void leave_waiting_out(std::span<sim::Row> rows) {
  using Exchange = std::tuple<std::string, sim::Phase, std::int64_t, std::int64_t>;
  const auto exchange = [](const sim::Row& row) {
    return Exchange(row.id, row.phase, row.count, row.network.value);
  };
  std::map<Exchange, sim::Seconds> least;
  for (const sim::Row& row : rows) {
    if (!row.exposed) continue;
    const auto [at, is_new] = least.try_emplace(exchange(row), *row.exposed);
    if (!is_new) at->second = std::min(at->second, *row.exposed);
  }
  for (sim::Row& row : rows)
    if (row.exposed) row.exposed = least.at(exchange(row));
}

std::vector<sim::MemoryLine> measured_ledger(const sim::MemoryPlan& memory, const Arena& arena,
                                             sim::Bytes in_use, const std::vector<PlatformMemory>& platform) {
  std::vector<sim::MemoryLine> lines;
  for (int c = 0; c < sim::kBufferClasses; ++c) {
    const sim::Bytes bytes = memory.at_peak[static_cast<std::size_t>(c)];
    if (bytes.value > 0)
      lines.push_back({std::string(sim::name(static_cast<sim::BufferClass>(c))), 0, bytes});
  }
  lines.push_back({"packing", 0, arena.high_water() - memory.live_peak});
  sim::Bytes rest = in_use - arena.resident();
  for (const PlatformMemory& part : platform)
    if (part.bytes.value > 0) {
      lines.push_back({part.name, 0, part.bytes});
      rest = rest - part.bytes;
    }
  // Others who share the device may have given memory back since the parts were measured.
  lines.push_back({"platform", 0, std::max(rest, sim::Bytes{})});
  return lines;
}

std::vector<sim::MemoryTimePoint> measured_timeline(const sim::Plan& plan, const sim::MemoryPlan& memory,
                                                    std::span<const double> stamps) {
  std::vector<sim::MemoryTimePoint> timeline;
  for (const sim::MemoryPoint& point : sim::memory_timeline(plan, memory)) {
    const auto operation = static_cast<std::size_t>(point.time);
    if (operation >= stamps.size()) break;  // the run ended before
    timeline.push_back({sim::Seconds{stamps[operation]}, point.bytes});
  }
  return timeline;
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  const std::size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, length};
}

}  // namespace runtime
