// Films (moving pictures): what a plan does over time, as data that can be drawn at any moment of it.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cost/calibration.h"
#include "sim/report/report.h"

namespace app::lesson {

enum class FilmKind {
  memory,    // memory of the fullest stage, over a training step
  pipeline,  // micro-batches through the stages
  ring,      // keys and values that ranks of context parallelism pass on, in one layer
  cache,     // blocks of a KV cache that sequences take and free
  experts,   // tokens that travel to their experts' devices and back, in one layer
  draft,     // tokens that a small model proposes and the large one verifies
  tiles      // tiles of scores that flash attention holds one at a time, with an online softmax
};
inline constexpr std::string_view kFilmNames[] = {"memory",  "pipeline", "ring", "cache",
                                                  "experts", "draft",    "tiles"};
std::optional<FilmKind> film_kind_from_name(std::string_view name);

struct Film {
  FilmKind kind{};
  std::string title;              // "8 micro-batches through 4 stages"
  std::vector<std::string> rows;  // "stage 0", "rank 3", "block 7"
  // What a row does or holds for a time. The spans of one row do not overlap.
  struct Span {
    std::size_t row = 0;
    double start = 0, end = 0;  // seconds
    int of = 0;                 // the micro-batch, shard or sequence; -1: none
    bool back = false;          // a backward pass; of FilmKind::draft: a proposal that is refused
    std::string name;           // "forward of 3"
  };
  // A token that travels from one row to another, in FilmKind::experts.
  struct Flight {
    std::size_t from = 0, to = 0;
    double start = 0, end = 0;  // seconds
  };
  std::vector<Flight> flights;
  // A token of the text in FilmKind::draft: `proposed` by the draft, or else the large model's own.
  struct Written {
    double time = 0;  // when it is known, seconds
    bool proposed = false;
  };
  std::vector<Written> written;
  double plain_token = 0;  // seconds of a token without a draft
  // FilmKind::tiles: the online softmax of a query after each tile, one for each span; and the scores by row.
  struct Softmax {
    double maximum = 0, sum = 0;  // of the scores so far; of exp(score - maximum)
    double factor = 0;            // by which the tile rescaled the sum before it
  };
  std::vector<Softmax> softmax;
  std::vector<std::vector<double>> scores;
  double table_bytes = 0;                    // size of one head's scores, which are never stored
  std::vector<Span> spans;                   // by row, then start
  std::vector<sim::MemoryTimePoint> levels;  // of FilmKind::memory: live bytes, by time
  double end = 0;                            // seconds
  int holders = 0;                           // number of values of Span::of: micro-batches, shards, sequences

  // What a row does at a time; null: nothing.
  const Span* at(std::size_t row, double time) const;
  // The level at a time: the last one that began before it. Requires levels.
  const sim::MemoryTimePoint& level_at(double time) const;
  // The moment in a sentence: "3 of 4 stages work, 1 waits".
  std::string says(double time) const;
};

// The tokens that speculative decoding proposes in a round, and the average probability that a proposal is
// accepted (Leviathan et al. 2023, arXiv 2211.17192).
inline constexpr int kProposals = 4;
inline constexpr double kAccepted = 0.8;

// Other predictions that a picture needs: of scenarios with another batch, or another model.
using PredictOther = std::function<sim::Report(const sim::Scenario&)>;

// `report` is the scenario's prediction; `draft` is the model that proposes in FilmKind::draft. Throws
// std::invalid_argument, with a sentence, where the scenario has no such film: no pipeline, no ring, no
// cache, or more rows than can be seen.
Film make_film(FilmKind kind, const sim::Scenario& scenario, const sim::Report& report,
               const sim::Calibration* calibration = nullptr, const std::string& draft = {},
               const PredictOther& predict = {});

}  // namespace app::lesson
