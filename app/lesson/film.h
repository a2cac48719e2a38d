// Moving pictures: what a plan does over time, as data that anybody can draw at any moment of it.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cost/calibration.h"
#include "sim/report/report.h"

namespace app::lesson {

enum class FilmKind {
  memory,    // of the fullest stage, over a training step
  pipeline,  // micro-batches through the stages
  ring,      // keys and values that ranks of context parallelism pass on, in one layer
  cache      // blocks of a KV cache that sequences take and free
};
inline constexpr std::string_view kFilmNames[] = {"memory", "pipeline", "ring", "cache"};
std::optional<FilmKind> film_kind_from_name(std::string_view name);

struct Film {
  FilmKind kind{};
  std::string title;              // "8 micro-batches through 4 stages"
  std::vector<std::string> rows;  // "stage 0", "rank 3", "block 7"
  // What a row does or holds for a time. Those of a row do not overlap.
  struct Span {
    std::size_t row = 0;
    double start = 0, end = 0;  // seconds
    int of = 0;                 // the micro-batch, shard or sequence; -1: none
    bool back = false;          // a backward pass
    std::string name;           // "forward of 3"
  };
  std::vector<Span> spans;                   // by row, then start
  std::vector<sim::MemoryTimePoint> levels;  // of FilmKind::memory: bytes that live, by time
  double end = 0;                            // seconds
  int holders = 0;                           // values of Span::of: micro-batches, shards, sequences

  // What a row does at a time; null: nothing.
  const Span* at(std::size_t row, double time) const;
  // The level at a time: the last that began before it. Only where there are levels.
  const sim::MemoryTimePoint& level_at(double time) const;
  // The moment in a sentence: "3 of 4 stages work, 1 waits".
  std::string says(double time) const;
};

// `report` is the scenario's prediction. Throws std::invalid_argument, a sentence, where the scenario has no
// such picture: no pipeline, no ring, no cache, or more rows than can be seen.
Film make_film(FilmKind kind, const sim::Scenario& scenario, const sim::Report& report,
               const sim::Calibration* calibration = nullptr);

}  // namespace app::lesson
