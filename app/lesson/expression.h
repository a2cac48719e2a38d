// Arithmetic over quantities, with its dimension checked:
//
//     written     = expression [ "|" STYLE ]             percent, times, count
//     expression  = sum [ ("<" | "<=" | ">" | ">=") sum ] [ "@" changes ]
//     sum         = product { ("+" | "-") product }
//     product     = power { ("*" | "/") power }
//     power       = operand [ "^" number ]               of what has no dimension
//     operand     = number [ unit ] | quantity | "(" expression ")" | "-" operand
//     changes     = PATH "=" VALUE { "," PATH "=" VALUE }
//
// "@" is the scenario with fields changed: (peak_memory @ strategy.recompute=full) / peak_memory.
#pragma once
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "app/lesson/quantities.h"
#include "app/lesson/situation.h"
#include "app/lesson/unit.h"

namespace app::lesson {

// What is wrong with a text, without its place.
struct ExpressionError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Expression {
 public:
  // Throws ExpressionError.
  explicit Expression(std::string_view text);
  Expression(Expression&&) noexcept;
  Expression& operator=(Expression&&) noexcept;
  ~Expression();

  const std::string& source() const { return source_; }
  Dimension dimension() const;
  // The style of its value: the one that the text asks for, else the quantity's own, else plain.
  Style style() const;
  bool is_comparison() const;
  bool names(std::string_view quantity) const;  // anywhere in it
  bool is_only_measured() const;                // names a quantity that no prediction has

  // Throws what predictions throw. A comparison is 1 where it holds.
  Value value(const Situation& situation) const;
  // Whether a comparison holds.
  bool holds(const Situation& situation) const { return value(situation).number != 0; }
  // "6 × parameters × tokens".
  std::string in_words() const;
  // The same with the numbers put in: "6 × 8.03B × 16,384 tokens".
  std::string in_numbers(const Situation& situation) const;

  struct Node;

 private:
  std::string source_;
  std::unique_ptr<Node> root_;
  std::optional<Style> style_;  // that is asked for
};

// "strategy.recompute=full, workload.seq_len=8192". Throws ExpressionError.
Changes parse_changes(std::string_view text);

}  // namespace app::lesson
