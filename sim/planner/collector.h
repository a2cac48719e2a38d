// What a search keeps of the candidates that it passes: counts, the best, the front, a thinned scatter.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/planner/search.h"

namespace sim {

// A number that looks random, the same for the same candidate (Steele, Lea & Flood 2014: the finaliser of
// SplitMix64).
inline std::uint64_t hash_of(std::int64_t index) {
  std::uint64_t z = static_cast<std::uint64_t>(index) + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
// The bound of a scatter that takes every candidate, whatever its hash_of().
inline constexpr std::uint64_t kDrawsAll = std::numeric_limits<std::uint64_t>::max();

class Collector {
 public:
  // `draw_below`: the scatter takes candidates whose hash_of() is below it; from most_drawn().
  Collector(const SearchSpace& space, const Constraints& constraints, const Tariff& tariff,
            const SearchOptions& options, std::uint64_t draw_below);

  // Reasons are numbered, so that counting them costs nothing.
  std::size_t reason(const std::string& what);
  // Counts so many candidates as refused for this reason.
  void refuse(std::size_t reason, std::int64_t candidates) {
    refused_[reason] += candidates;
    looked_at_ += candidates;
  }

  // Whether the scatter takes the candidate.
  bool is_drawn(std::int64_t index) const { return hash_of(index) < draw_below_; }
  // `tokens`: of one step.
  Candidate candidate(std::int64_t index, std::int32_t devices, double tokens,
                      const Estimate& estimate) const;
  void add_too_large(std::int64_t index, Bytes memory);
  Bytes most_memory() const { return most_memory_; }
  // The memory of the smallest of all candidates so far.
  Bytes smallest_memory() const {
    return smallest_ < 0 ? Bytes{std::numeric_limits<std::int64_t>::max()} : smallest_memory_;
  }
  // Whether the time of every candidate that fits is needed, whatever its bounds say.
  bool times_all() const { return limits_time_ || draw_below_ == kDrawsAll; }
  // A candidate that fits and takes `least` or longer can be kept only if it needs no more memory than this.
  // The value never falls as long as nothing is added.
  Bytes memory_that_matters(std::int32_t devices, double tokens, Seconds least) const;
  // Counts a candidate that fits but cannot be kept.
  void add_beaten() { count({.fits_memory = true, .refused_by = {}, .kept = false}); }
  // What became of a candidate.
  struct Added {
    bool fits_memory = false;
    std::optional<std::size_t> refused_by;
    bool kept = false;  // among the best or in the front
  };
  Added add(std::int64_t index, std::int32_t devices, double tokens, const Estimate& estimate);
  // Counts a later candidate with the same estimate, which is no better. False: it must be added instead.
  bool add_alike(std::int64_t index, const Added& earlier) {
    if (earlier.kept || is_drawn(index)) return false;
    count(earlier);
    return true;
  }

  // Takes over what other searches have found, which may beat what this one finds.
  void learn(const SearchResult& found);

  // Returns what was collected and begins anew, but keeps what is known to beat others.
  SearchResult take();

 private:
  // Less is better; ties go to the faster, then to the smaller number.
  struct Best {
    std::vector<Candidate> kept;
    double worst = 0;  // cost of the last of the kept, once there are as many as wanted
    bool full = false;
  };
  // Counts a legal candidate. The time of one that is too large is found only where the scatter draws it.
  void count(const Added& added) {
    ++legal_;
    if (added.fits_memory) ++evaluated_;
    if (added.refused_by) return refuse(*added.refused_by, 1);
    ++fitting_;
    ++looked_at_;
  }
  // keep_best() and keep_front() return whether they keep the candidate.
  bool keep_best(const Candidate& c, Objective objective);
  bool keep_front(const Candidate& c);
  void draw(const Candidate& c);

  const SearchOptions& options_;
  Constraints constraints_;
  Tariff tariff_;
  Bytes most_memory_;
  bool limits_time_ = false;
  std::uint64_t draw_below_;  // hashes of candidates that the scatter takes
  std::vector<std::string> reasons_;
  std::vector<std::int64_t> refused_;
  std::int64_t looked_at_ = 0, legal_ = 0, evaluated_ = 0, fitting_ = 0;
  EnumArray<Objective, Best> best_;
  // For each number of devices, where time decides money and energy: by time, memory falls.
  std::map<std::int32_t, std::vector<Candidate>> fronts_;
  std::vector<Candidate> points_;
  std::optional<Candidate> fastest_;
  std::int64_t smallest_ = -1;
  Bytes smallest_memory_;
};

// Sorts the best of an objective and leaves as many as are wanted.
void cut_best(std::vector<Candidate>& best, Objective objective, std::size_t most);
// Leaves the candidates that no other one beats.
void cut_front(std::vector<Candidate>& front);
// Leaves the `most` points with the smallest hashes, an even draw, sorted by number.
void cut_points(std::vector<Candidate>& points, std::size_t most);
// The same for two draws together, each sorted by number.
void join_points(std::vector<Candidate>& into, const std::vector<Candidate>& other, std::size_t most);
// The scatter shows the legal candidates with the smallest hashes. This is an upper end of hashes that leaves
// enough of them, by the legal share of a few thousand tried; all ranges of a space have the same.
std::uint64_t most_drawn(const SearchSpace& space, std::size_t most_points);

}  // namespace sim
