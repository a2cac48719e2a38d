// Values of the table of fields (sim/scenario/fields.h) drawn at random: whatever a field may hold, together
// with the others or not. A field that the table gains is drawn from then on.
#pragma once
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

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

// A value near to those that runs have: beside random_text(), small numbers, powers of two, and numbers a few
// times as large or small as the scenario's, of which degrees and batches divide each other more often.
inline std::string usual_text(std::mt19937_64& random, const sim::Scenario& s, const sim::AnyField& f) {
  if (f.kind != sim::AnyField::Kind::number) return random_text(random, f);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int most_doublings = std::max(1, static_cast<int>(std::log2(std::min(f.most, 0x1p40))));
  double value = 0;
  switch (below(5)) {
    case 0:
      return random_text(random, f);
    case 1:
      value = f.least + below(5);
      break;
    case 2:
      value = std::ldexp(1 + below(3), below(most_doublings));
      break;
    case 3:
      value = std::ldexp(1.0, below(std::min(most_doublings, 8)));
      break;
    case 4:
      value = std::floor(f.number(s) * std::ldexp(1 + below(3), below(7) - 3));
      break;
  }
  return std::to_string(static_cast<std::int64_t>(std::clamp(value, f.least, std::min(f.most, 0x1p53))));
}

// Changes a few fields of a scenario at a time, those of the table that `varied` names, and keeps what is
// legal. From a legal scenario it comes to others of all fields, however fields depend on each other.
template <class Varied, class Legal>
void vary_fields(std::mt19937_64& random, sim::Scenario& s, int changes, Varied varied, Legal is_legal) {
  std::vector<const sim::AnyField*> fields;
  for (const sim::AnyField& f : sim::all_fields())
    if (varied(f)) fields.push_back(&f);
  for (int i = 0; i < changes; ++i) {
    sim::Scenario changed = s;
    for (auto together = 1 + random() % 3; together > 0; --together) {
      const sim::AnyField& f = *fields[random() % fields.size()];
      f.set(changed, usual_text(random, changed, f));
    }
    if (is_legal(std::as_const(changed))) s = std::move(changed);
  }
}

// Gives each field a value, but for some that keep theirs.
inline void draw_fields(std::mt19937_64& random, sim::Scenario& s, unsigned one_in = 2) {
  for (const sim::AnyField& f : sim::all_fields())
    if (random() % one_in == 0) f.set(s, random_text(random, f));
}
