// What a calibration times, piece by piece.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/machine_pace.h"
#include "sim/cost/calibration.h"

namespace runtime {

// A sample, timed once.
struct TimedSample {
  sim::KernelSample sample;
  Pace pace;        // that the machine had then
  double load = 0;  // cores that others took from ours
};

// What one operation, or one short run, gave when it was timed: samples, each with its place among those that
// the operation or the run may have.
using TimedPiece = std::vector<std::pair<std::size_t, TimedSample>>;

// Pieces in the order that they are asked for. What is asked for next follows from the pieces before, so that
// another calibration of the same code asks for the same.
class TimedPieces {
 public:
  TimedPieces() = default;
  explicit TimedPieces(std::vector<TimedPiece> known) : pieces_(std::move(known)) {}

  // The next one; null where it has to be timed. Valid until add().
  const TimedPiece* next() { return asked_ < pieces_.size() ? &pieces_[asked_++] : nullptr; }
  // That was timed then.
  void add(TimedPiece piece) {
    pieces_.push_back(std::move(piece));
    asked_ = pieces_.size();
  }

  void ask_from_first() { asked_ = 0; }

  const std::vector<TimedPiece>& all() const { return pieces_; }

 private:
  std::vector<TimedPiece> pieces_;
  std::size_t asked_ = 0;
};

}  // namespace runtime
