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
// A scatter that takes candidates of any hash_of().
inline constexpr std::uint64_t kDrawsAll = std::numeric_limits<std::uint64_t>::max();

class Collector {
 public:
  // `draw_below`: of hash_of() candidates that the scatter takes, as most_drawn() has it.
  Collector(const SearchSpace& space, const Constraints& constraints, const Tariff& tariff,
            const SearchOptions& options, std::uint64_t draw_below);

  // Reasons are numbered, so that counting them costs nothing.
  std::size_t reason(const std::string& what);
  // So many candidates contradict themselves.
  void refuse(std::size_t reason, std::int64_t candidates) {
    refused_[reason] += candidates;
    looked_at_ += candidates;
  }

  // Whether the scatter takes it.
  bool is_drawn(std::int64_t index) const { return hash_of(index) < draw_below_; }
  // `tokens` of a step.
  Candidate candidate(std::int64_t index, std::int32_t devices, double tokens,
                      const Estimate& estimate) const;
  void add_too_large(std::int64_t index, Bytes memory);
  Bytes most_memory() const { return most_memory_; }
  // The memory of the smallest of all candidates so far.
  Bytes smallest_memory() const {
    return smallest_ < 0 ? Bytes{std::numeric_limits<std::int64_t>::max()} : smallest_memory_;
  }
  // The time of all that fit is asked for, whatever its bounds say.
  bool times_all() const { return limits_time_ || draw_below_ == kDrawsAll; }
  // A candidate that fits and takes `least` or longer may yet be among what is kept where it has no more
  // memory than this. Never less as long as nothing is added.
  Bytes memory_that_matters(std::int32_t devices, double tokens, Seconds least) const;
  // One that does not matter.
  void add_beaten() { count({.fits_memory = true, .refused_by = {}, .kept = false}); }
  // What became of one.
  struct Added {
    bool fits_memory = false;
    std::optional<std::size_t> refused_by;
    bool kept = false;  // among the best or in the front
  };
  Added add(std::int64_t index, std::int32_t devices, double tokens, const Estimate& estimate);
  // A later one that comes to the same is no better: whether it need not be added, for it is counted.
  bool add_alike(std::int64_t index, const Added& earlier) {
    if (earlier.kept || is_drawn(index)) return false;
    count(earlier);
    return true;
  }

  // What others have found, that beats what this one may find.
  void learn(const SearchResult& found);

  // What was collected; begins anew, but for what is known to beat others.
  SearchResult take();

 private:
  // Less is better; ties go to the faster, then to the smaller number.
  struct Best {
    std::vector<Candidate> kept;
    double worst = 0;  // cost of the last of the kept, once there are as many as wanted
    bool full = false;
  };
  // A legal one; of those that are too large the time is found only where the scatter draws them.
  void count(const Added& added) {
    ++legal_;
    if (added.fits_memory) ++evaluated_;
    if (added.refused_by) return refuse(*added.refused_by, 1);
    ++fitting_;
    ++looked_at_;
  }
  // Whether they do.
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
// Leaves those that no other is better than.
void cut_front(std::vector<Candidate>& front);
// Leaves as many as are wanted of an even draw, by number.
void cut_points(std::vector<Candidate>& points, std::size_t most);
// The same of two draws, each by number.
void join_points(std::vector<Candidate>& into, const std::vector<Candidate>& other, std::size_t most);
// A scatter of a space's legal candidates is of those with the smallest hashes: an end that leaves enough of
// them, from the share of the legal among a few thousand that are tried. The same for all ranges of a space.
std::uint64_t most_drawn(const SearchSpace& space, std::size_t most_points);

}  // namespace sim
