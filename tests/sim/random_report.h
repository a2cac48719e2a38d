// Reports drawn at random: every field set, numbers with all their bits.
#pragma once
#include <random>
#include <string>

#include "sim/report/report.h"
#include "tests/sim/random_scenario.h"

inline sim::Report random_report(std::mt19937_64& random) {
  sim::Report r;
  r.source.kind = static_cast<sim::ReportKind>(draw(random, 0, 2));
  r.source.scenario = random_scenario(random);
  r.source.device = "Processor, 2 threads";
  r.source.date = "2026-01-31T12:00:00Z";
  r.source.software = "ridgepoint 0.1.0";
  r.source.seed = random();
  r.source.calibration = draw(random, 0, 1) ? "measured" : "";
  const auto seconds = [&random] { return sim::Seconds{draw_magnitude(random, -9, 3)}; };
  const auto bytes = [&random] { return sim::Bytes{draw(random, 0, std::int64_t{1} << 50)}; };
  r.step_time = seconds();
  r.step_low = seconds();
  r.step_high = seconds();
  for (std::int64_t i = draw(random, 0, 20); i > 0; --i) {
    sim::Row row;
    row.id = "operation " + std::to_string(i);
    row.phase = static_cast<sim::Phase>(draw(random, 0, 5));
    row.rank = static_cast<std::int32_t>(draw(random, 0, 2));
    row.kind = static_cast<sim::OpKind>(draw(random, 0, static_cast<int>(sim::OpKind::receive)));
    row.count = draw(random, 1, 1000);
    row.start = seconds();
    row.duration = seconds();
    row.low = seconds();
    row.high = seconds();
    row.flops = {draw_magnitude(random, 0, 25)};
    row.model_flops = {draw_magnitude(random, 0, 25)};
    row.memory = bytes();
    row.network = bytes();
    row.bound = static_cast<sim::Bound>(draw(random, 0, 3));
    row.provenance = static_cast<sim::Provenance>(draw(random, 0, 3));
    if (draw(random, 0, 3) == 0) row.fused_into = "operation 0";
    if (draw(random, 0, 1) == 0) row.exposed = row.duration * 0.5;
    r.rows.push_back(row);
  }
  for (std::int64_t i = draw(random, 0, 8); i > 0; --i)
    r.memory.push_back(
        {"category " + std::to_string(i), static_cast<std::int32_t>(draw(random, 0, 2)), bytes()});
  for (std::int64_t i = draw(random, 0, 10); i > 0; --i) {
    sim::MemoryTimePoint point;
    point.time = seconds();
    for (sim::Bytes& b : point.bytes) b = bytes();
    r.memory_timeline.push_back(point);
  }
  for (std::int64_t i = 1; i <= draw(random, 0, 10); ++i) {
    r.steps.push_back(
        {i, draw_magnitude(random, -2, 2), draw_magnitude(random, -4, 4), seconds(), draw(random, 1, 10000)});
    if (i % 2 == 0) r.steps.back().micro_batch_grad_norm = draw_magnitude(random, -4, 4);
    if (i % 4 == 0) r.steps.back().noise_scale = draw_magnitude(random, -1, 4);
  }
  for (std::int64_t i = 0; i < draw(random, 0, 10); ++i)
    r.tokens.push_back({i, static_cast<std::int32_t>(draw(random, -1, 100000)), "\"\xC3\xA9\n", seconds()});
  for (std::int64_t i = draw(random, 0, 5); i > 0; --i)
    r.device_samples.push_back({seconds(), draw_magnitude(random, 2, 3), draw_magnitude(random, 2, 3),
                                draw_magnitude(random, 1, 3), draw_magnitude(random, 1, 2),
                                draw(random, 0, 1) ? "power cap" : ""});
  r.message = draw(random, 0, 1) ? "interrupted after 12 of 100 steps" : "";
  return r;
}
