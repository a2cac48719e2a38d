// Values of the table of fields (sim/scenario/fields.h) drawn at random: whatever a field may hold, together
// with the others or not. A field that the table gains is drawn from then on.
#pragma once
#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "sim/scenario/fields.h"

// A value that the field may have, as its flag takes it.
inline std::string random_text(std::mt19937_64& random, const sim::AnyField& f) {
  using Kind = sim::AnyField::Kind;
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const auto between = [&](double low, double high) {
    // Small numbers as often as large ones.
    const double share = std::uniform_real_distribution<double>(0, 1)(random);
    return low + std::expm1(share * std::log1p(high - low));
  };
  if (f.optional && below(3) == 0) return "";
  switch (f.kind) {
    case Kind::toggle:
      return below(2) ? "true" : "false";
    case Kind::number:
      return std::to_string(static_cast<std::int64_t>(between(f.least, std::min(f.most, 0x1p30))));
    case Kind::fraction: {
      const double value = between(std::max(f.least, 0.0), std::min(f.most, 1000.0));
      char digits[32];
      std::snprintf(digits, sizeof digits, "%.17g", std::clamp(value, f.least, f.most));
      return digits;
    }
    case Kind::words: {
      std::string list;
      for (const std::string_view word : f.words)
        if (below(2)) list.append(list.empty() ? "" : ",").append(word);
      return list;
    }
    case Kind::word:
      return std::string(f.words[below(f.words.size())]);
    case Kind::text:
      if (!f.words.empty()) return std::string(f.words[below(f.words.size())]);
      // Orders of ranks, and what no field takes.
      static const std::vector<std::string> texts{"tp-cp-ep-dp-pp", "pp-dp-cp-tp-ep", "tp-dp-pp-cp-ep",
                                                  "it's a \"text\"; $HOME", ""};
      return texts[below(texts.size())];
  }
  return "";
}

// Gives each field a value, but for some that keep theirs.
inline void draw_fields(std::mt19937_64& random, sim::Scenario& s, unsigned one_in = 2) {
  for (const sim::AnyField& f : sim::all_fields())
    if (random() % one_in == 0) f.set(s, random_text(random, f));
}
