// One iteration of an inference engine, and what its time is made of.
#pragma once
#include <vector>

#include "sim/cost/engine_price.h"
#include "sim/enum_array.h"
#include "sim/units.h"

namespace sim {

// The time of an iteration by kind of cost. Errors within a kind add up; errors of two kinds are independent.
struct CostBreakdown {
  struct Part {
    Seconds expected;
    Seconds above;  // upper end of the 90 % band minus `expected`
  };
  EnumArray<CostKind, Part> parts{};

  void add(CostKind kind, Seconds expected, double relative_error);
  void add(CostKind kind, const Price& price, double times);
  Seconds total() const;
  // Ratio of the band's upper end to the expected time, and of the expected time to the lower end. The parts'
  // errors are added in quadrature.
  double band() const;
  CostBreakdown& operator+=(const CostBreakdown& o);
  CostBreakdown operator*(double n) const;
};

// One iteration. Lengths are means over a group's sequences, which suffice since attention is linear in them.
struct Iteration {
  double decode_sequences = 0;
  double decode_tokens = 1;   // new tokens of each sequence: more than one where a draft's are verified
  double decode_context = 0;  // tokens in the cache of each sequence, the new one included
  struct Prompt {
    double sequences = 1;
    double tokens = 0;   // new tokens of each sequence
    double context = 0;  // tokens that the last one sees: over `tokens` after the first chunk of a prompt
    bool last = true;    // the prompt ends here: logits of its last token are needed
  };
  std::vector<Prompt> prompts;
};

}  // namespace sim
