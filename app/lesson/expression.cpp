#include "app/lesson/expression.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "app/lesson/field_words.h"
#include "sim/foreign_text.h"
#include "sim/format.h"

namespace app::lesson {

struct Expression::Node {
  enum class Kind { number, quantity, binary, negation, change } kind = Kind::number;
  char operation = 0;  // binary only: + - * / ^ < > and l (<=), g (>=)
  double number = 0;   // as written, before its unit
  std::string unit;
  Value literal;
  const Quantity* quantity = nullptr;
  Changes changes;
  std::string changes_text;
  std::unique_ptr<Node> left, right;
  Dimension dimension;

  bool compares() const {
    return kind == Kind::binary && std::string_view("<>lg").find(operation) != std::string_view::npos;
  }
};

namespace {

// Limits how deep brackets, signs and sums nest, because reading, computing and freeing them recurse.
constexpr std::size_t kMostCharacters = 1000;

using Node = Expression::Node;
using NodePtr = std::unique_ptr<Node>;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

std::string known_names_near(std::string_view word) {
  std::string near;
  for (const Quantity& q : quantities())
    if (q.name.find(word.substr(0, std::min<std::size_t>(word.size(), 4))) != std::string_view::npos)
      near.append(near.empty() ? "" : ", ").append(q.name);
  return near.empty() ? "`ridgepoint lesson --quantities` lists them" : "near it are " + near;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  NodePtr whole() {
    NodePtr node = expression();
    skip_space();
    if (at_ < text_.size())
      fail(fmt::format("\"{}\" is not understood: an operator or a comma is missing before it",
                       sim::excerpt(text_.substr(at_))));
    return node;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw ExpressionError(fmt::format("{} in \"{}\"", why, sim::excerpt(text_)));
  }
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  NodePtr binary(char operation, NodePtr left, NodePtr right) {
    auto node = std::make_unique<Node>();
    node->kind = Node::Kind::binary;
    node->operation = operation;
    const Dimension a = left->dimension, b = right->dimension;
    if (operation == '*') {
      node->dimension = a * b;
    } else if (operation == '/') {
      node->dimension = a / b;
    } else if (operation == '^') {
      if (!a.is_none() || !b.is_none()) fail("a power is of numbers without a unit");
    } else {
      if (!(a == b)) fail(fmt::format("{} and {} cannot be added or compared", a.name(), b.name()));
      if (operation == '+' || operation == '-') node->dimension = a;
    }
    node->left = std::move(left);
    node->right = std::move(right);
    return node;
  }

  NodePtr expression() {
    NodePtr node = sum();
    if (const char c = peek(); c == '<' || c == '>') {
      ++at_;
      const bool or_equal = at_ < text_.size() && text_[at_] == '=';
      if (or_equal) ++at_;
      const char operation = c == '<' ? (or_equal ? 'l' : '<') : (or_equal ? 'g' : '>');
      node = binary(operation, std::move(node), sum());
    }
    if (!take('@')) return node;
    std::size_t end = at_, depth = 0;
    while (end < text_.size() && (depth > 0 || text_[end] != ')')) {
      if (text_[end] == '(' || text_[end] == '[') ++depth;
      if (text_[end] == ')' || text_[end] == ']') --depth;
      ++end;
    }
    auto changed = std::make_unique<Node>();
    changed->kind = Node::Kind::change;
    changed->changes_text = std::string(trimmed(text_.substr(at_, end - at_)));
    changed->changes = parse_changes(changed->changes_text);
    changed->dimension = node->dimension;
    changed->left = std::move(node);
    at_ = end;
    return changed;
  }
  NodePtr sum() {
    NodePtr node = product();
    for (char c = peek(); c == '+' || c == '-'; c = peek()) {
      ++at_;
      node = binary(c, std::move(node), product());
    }
    return node;
  }
  NodePtr product() {
    NodePtr node = power();
    for (char c = peek(); c == '*' || c == '/'; c = peek()) {
      ++at_;
      node = binary(c, std::move(node), power());
    }
    return node;
  }
  NodePtr power() {
    NodePtr node = operand();
    return take('^') ? binary('^', std::move(node), operand()) : std::move(node);
  }
  NodePtr operand() {
    const char c = peek();
    if (take('(')) {
      NodePtr node = expression();
      if (!take(')')) fail("a \")\" is missing");
      return node;
    }
    if (take('-')) {
      auto node = std::make_unique<Node>();
      node->kind = Node::Kind::negation;
      node->left = operand();
      node->dimension = node->left->dimension;
      return node;
    }
    if (std::isdigit(static_cast<unsigned char>(c)) || c == '.') return literal();
    if (std::isalpha(static_cast<unsigned char>(c))) return quantity();
    fail(c == '\0' ? "a number or a quantity is missing at the end"
                   : fmt::format("'{}' is not understood", c));
  }
  // Reads letters or %, with a "/s" after them where that makes a unit. Empty where something else follows.
  std::string_view unit_word() {
    skip_space();
    std::size_t stop = at_;
    while (stop < text_.size() &&
           (std::isalpha(static_cast<unsigned char>(text_[stop])) || text_[stop] == '%'))
      ++stop;
    if (stop > at_ && text_.substr(stop, 2) == "/s" && unit_from_name(text_.substr(at_, stop + 2 - at_)))
      stop += 2;
    return text_.substr(at_, stop - at_);
  }
  NodePtr literal() {
    auto node = std::make_unique<Node>();
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), node->number);
    if (error != std::errc()) fail("a number is not understood");
    at_ += static_cast<std::size_t>(end - begin);
    node->literal = {node->number, {}};
    // A factor such as a thousand may come first, then a unit: "200M tokens".
    for (bool more = true; more;) {
      const std::string_view word = unit_word();
      if (word.empty()) break;
      const auto unit = unit_from_name(word);
      if (!unit)
        fail(fmt::format("\"{}\" is no unit; there are {}", sim::excerpt(word),
                         fmt::join(unit_names(), ", ")));
      more = node->unit.empty() && unit->dimension.is_none();
      node->unit.append(node->unit.empty() ? "" : " ").append(word);
      node->literal = {node->literal.number * unit->number, unit->dimension};
      at_ += word.size();
    }
    node->dimension = node->literal.dimension;
    return node;
  }
  NodePtr quantity() {
    std::size_t stop = at_;
    while (stop < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[stop])) || text_[stop] == '_'))
      ++stop;
    const std::string_view word = text_.substr(at_, stop - at_);
    auto node = std::make_unique<Node>();
    node->kind = Node::Kind::quantity;
    node->quantity = find_quantity(word);
    if (!node->quantity)
      fail(fmt::format("there is no quantity \"{}\" ({})", sim::excerpt(word), known_names_near(word)));
    node->dimension = node->quantity->dimension;
    at_ = stop;
    return node;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

// The situation after a change.
Situation changed(const Node& change, const Situation& situation) {
  return {situation.predictions.changed(situation.scenario, change.changes,
                                        fmt::format("\"{}\"", change.changes_text)),
          situation.predictions};
}

Value evaluate(const Node& node, const Situation& situation) {
  switch (node.kind) {
    case Node::Kind::number:
      return node.literal;
    case Node::Kind::quantity:
      return {node.quantity->of(situation), node.dimension};
    case Node::Kind::negation:
      return {-evaluate(*node.left, situation).number, node.dimension};
    case Node::Kind::change: {
      const Situation other = changed(node, situation);
      return evaluate(*node.left, other);
    }
    case Node::Kind::binary:
      break;
  }
  const double a = evaluate(*node.left, situation).number, b = evaluate(*node.right, situation).number;
  const auto value = [&]() -> double {
    switch (node.operation) {
      case '+':
        return a + b;
      case '-':
        return a - b;
      case '*':
        return a * b;
      case '/':
        return a / b;
      case '^':
        return std::pow(a, b);
      case '<':
        return a < b;
      case '>':
        return a > b;
      case 'l':
        return a <= b;
      default:
        return a >= b;
    }
  }();
  return {value, node.dimension};
}

Style style_of(const Node& node) {
  if (node.kind == Node::Kind::quantity) return node.quantity->style;
  if (node.kind == Node::Kind::change || node.kind == Node::Kind::negation) return style_of(*node.left);
  return Style::plain;
}

// How tightly an operator binds: a higher rank binds tighter.
constexpr int kOfProducts = 2, kOfOperands = 4;
int rank_of(const Node& node) {
  if (node.kind == Node::Kind::change) return 0;
  if (node.kind != Node::Kind::binary) return kOfOperands;
  if (node.operation == '^') return 3;
  if (node.operation == '*' || node.operation == '/') return kOfProducts;
  return node.operation == '+' || node.operation == '-' ? 1 : 0;
}

std::string text_of_literal(const Node& node) {
  const bool is_count = node.number >= 1000 && node.number < 1e15 && node.number == std::floor(node.number);
  const std::string digits =
      is_count ? sim::format_count(static_cast<std::int64_t>(node.number)) : fmt::format("{}", node.number);
  const bool close = node.unit.starts_with("k") || node.unit.starts_with("M ") || node.unit == "M" ||
                     node.unit.starts_with("B") || node.unit.starts_with("T ") || node.unit == "T";
  return node.unit.empty() ? digits : fmt::format("{}{}{}", digits, close ? "" : " ", node.unit);
}

// Whether a node is a bare "1 tokens": multiplying or dividing by it changes the unit but not the number.
bool is_bare_unit(const Node& node) {
  return node.kind == Node::Kind::number && !node.unit.empty() && node.literal.number == 1;
}

// Writes a node in words, or with the numbers of a situation where there is one.
std::string write(const Node& node, const Situation* situation) {
  switch (node.kind) {
    case Node::Kind::number:
      return text_of_literal(node);
    case Node::Kind::quantity:
      return situation ? text(evaluate(node, *situation), node.quantity->style)
                       : std::string(node.quantity->words);
    case Node::Kind::negation:
      return std::string("-").append(write(*node.left, situation));
    case Node::Kind::change: {
      if (!situation) return write(*node.left, nullptr) + " with " + change_words(node.changes);
      const Situation other = changed(node, *situation);
      return write(*node.left, &other);
    }
    case Node::Kind::binary:
      break;
  }
  static constexpr std::pair<char, std::string_view> kWords[] = {
      {'+', " + "}, {'-', " - "}, {'*', " \u00D7 "}, {'/', " / "}, {'^', "^"},
      {'<', " < "}, {'>', " > "}, {'l', " <= "},     {'g', " >= "}};
  const auto word = std::ranges::find(kWords, node.operation, &std::pair<char, std::string_view>::first);
  const int rank = rank_of(node);
  const auto part = [&](const Node& child, int least) {
    const std::string words = write(child, situation);
    const Node& shown = situation && child.kind == Node::Kind::change ? *child.left : child;
    // Parentheses also keep a unit's "/s" from looking like one more division.
    const bool confused =
        rank == kOfProducts && rank_of(shown) == kOfOperands && words.find('/') != std::string::npos;
    return rank_of(shown) < least || confused ? std::string("(").append(words).append(")") : words;
  };
  if (rank == kOfProducts && is_bare_unit(*node.right)) return part(*node.left, rank);
  // a - (b - c) and a / (b / c) keep their parentheses.
  const bool strict = node.operation == '-' || node.operation == '/' || node.operation == '^';
  return part(*node.left, rank).append(word->second).append(part(*node.right, rank + (strict ? 1 : 0)));
}

}  // namespace

bool Expression::names(std::string_view quantity) const {
  const auto among = [&](const auto& self, const Node* node) -> bool {
    return node && ((node->quantity && node->quantity->name == quantity) || self(self, node->left.get()) ||
                    self(self, node->right.get()));
  };
  return among(among, root_.get());
}

bool Expression::is_only_measured() const {
  return std::ranges::any_of(
      quantities(), [this](const Quantity& known) { return known.only_measured && names(known.name); });
}

Expression::Expression(std::string_view text) : source_(trimmed(text)) {
  if (source_.size() > kMostCharacters)
    throw ExpressionError(fmt::format("an expression has {} bytes, where at most {} are accepted",
                                      source_.size(), kMostCharacters));
  std::string_view sum = source_;
  if (const std::size_t bar = sum.rfind('|'); bar != std::string_view::npos) {
    const std::string_view style = trimmed(sum.substr(bar + 1));
    style_ = style_from_name(style);
    if (!style_)
      throw ExpressionError(fmt::format("\"{}\" is none of percent, times, count", sim::excerpt(style)));
    sum = sum.substr(0, bar);
  }
  root_ = Parser(sum).whole();
  if (!root_->dimension.is_written())
    throw ExpressionError(fmt::format("\"{}\" comes to {}; what is shown is a number, or in {}",
                                      sim::excerpt(sum), root_->dimension.name(),
                                      fmt::join(dimension_names(), ", ")));
}
Expression::Expression(Expression&&) noexcept = default;
Expression& Expression::operator=(Expression&&) noexcept = default;
Expression::~Expression() = default;

Dimension Expression::dimension() const {
  return root_->dimension;
}
Style Expression::style() const {
  return style_.value_or(style_of(*root_));
}
bool Expression::is_comparison() const {
  return root_->compares();
}
Value Expression::value(const Situation& situation) const {
  return evaluate(*root_, situation);
}
std::string Expression::in_words() const {
  return write(*root_, nullptr);
}
std::string Expression::in_numbers(const Situation& situation) const {
  return write(*root_, &situation);
}

Changes parse_changes(std::string_view text) {
  Changes changes;
  std::size_t depth = 0, begin = 0;
  const auto add = [&](std::string_view one) {
    one = trimmed(one);
    const std::size_t equals = one.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == one.size())
      throw ExpressionError(fmt::format(
          "\"{}\" is no change of a field: PATH=VALUE, as strategy.zero_stage=1", sim::excerpt(one)));
    changes.push_back(
        {std::string(trimmed(one.substr(0, equals))), std::string(trimmed(one.substr(equals + 1)))});
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[' || text[i] == '{') ++depth;
    if (text[i] == ']' || text[i] == '}') --depth;
    if (text[i] == ',' && depth == 0) {
      add(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  add(text.substr(begin));
  return changes;
}

}  // namespace app::lesson
