// One iteration of an inference engine, and what its time is made of.
#pragma once
#include <vector>

#include "sim/cost/engine_price.h"
#include "sim/enum_array.h"
#include "sim/units.h"

namespace sim {

// The time of an iteration by kind of cost; errors of one kind go together, kinds are independent.
struct CostBreakdown {
  struct Part {
    Seconds expected;
    Seconds above;  // the upper end of the 90 % band less the expected
  };
  EnumArray<CostKind, Part> parts{};

  void add(CostKind kind, Seconds expected, double relative_error);
  void add(CostKind kind, const Price& price, double times);
  Seconds total() const;
  // Ratio of the band's upper end to the expected time (and of the expected to the lower end): the parts'
  // errors in quadrature.
  double band() const;
  CostBreakdown& operator+=(const CostBreakdown& o);
  CostBreakdown operator*(double n) const;
};

// One iteration. Lengths are averages over the sequences of a group: attention is linear in them.
struct Iteration {
  double decode_sequences = 0;
  double decode_tokens = 1;   // new ones a sequence: more than one where proposals are verified
  double decode_context = 0;  // tokens in the cache a sequence, the new one included
  struct Prompt {
    double sequences = 1;
    double tokens = 0;   // new ones a sequence
    double context = 0;  // tokens that its last one sees: more than `tokens` where the prompt comes in chunks
    bool last = true;    // ends the prompt: logits of its last token are needed
  };
  std::vector<Prompt> prompts;
};

}  // namespace sim
