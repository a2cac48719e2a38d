// Explain puts the numbers into the formula: both sides of the line come to the same.
#include <cctype>
#include <cmath>
#include <map>
#include <stdexcept>

#include "sim/report/metrics.h"
#include "tests/gui/drawn_text.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"

using tests::NullDesktop;

namespace {

// Sums, products and quotients of numbers with units, as the panel writes them.
class Arithmetic {
 public:
  explicit Arithmetic(std::string text) : text_(std::move(text)) {}
  double value() {
    const double result = sum();
    if (at_ != text_.size()) throw std::invalid_argument("left: " + text_.substr(at_));
    return result;
  }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char letter) {
    skip();
    if (at_ >= text_.size() || text_[at_] != letter) return false;
    // The cross stands alone.
    if (letter == 'x' && at_ + 1 < text_.size() && std::isalpha(static_cast<unsigned char>(text_[at_ + 1])))
      return false;
    ++at_;
    return true;
  }
  double sum() {
    double result = product();
    while (take('+')) result += product();
    return result;
  }
  double product() {
    double result = factor();
    while (true) {
      if (take('x'))
        result *= factor();
      else if (take('/'))
        result /= factor();
      else
        return result;
    }
  }
  double factor() {
    if (take('(')) {
      const double result = sum();
      if (!take(')')) throw std::invalid_argument("no closing bracket");
      return result;
    }
    skip();
    std::string digits, unit;
    while (at_ < text_.size() &&
           (std::isdigit(static_cast<unsigned char>(text_[at_])) || text_[at_] == '.' || text_[at_] == ',')) {
      if (text_[at_] != ',') digits += text_[at_];
      ++at_;
    }
    if (digits.empty()) throw std::invalid_argument("no number: " + text_.substr(at_));
    skip();
    while (at_ < text_.size() && (std::isalpha(static_cast<unsigned char>(text_[at_])) ||
                                  (text_[at_] & 0x80) || text_[at_] == '%')) {
      if (text_[at_] == 'x' && unit.empty()) break;
      unit += text_[at_++];
    }
    // A rate's unit: "TFLOP/s", "GB/s", "tokens/s".
    if (!unit.empty() && text_.compare(at_, 2, "/s") == 0) at_ += 2;
    static const std::map<std::string, double> units = {{"", 1},
                                                        {"%", 0.01},
                                                        {"tokens", 1},
                                                        {"s", 1},
                                                        {"ms", 1e-3},
                                                        {"\u00b5s", 1e-6},
                                                        {"ns", 1e-9},
                                                        {"min", 60},
                                                        {"h", 3600},
                                                        {"B", 1},
                                                        {"KiB", 1024.0},
                                                        {"MiB", 1048576.0},
                                                        {"GiB", 1073741824.0},
                                                        {"TiB", 1099511627776.0},
                                                        {"MB", 1e6},
                                                        {"GB", 1e9},
                                                        {"TB", 1e12},
                                                        {"FLOP", 1},
                                                        {"KFLOP", 1e3},
                                                        {"MFLOP", 1e6},
                                                        {"GFLOP", 1e9},
                                                        {"TFLOP", 1e12},
                                                        {"PFLOP", 1e15},
                                                        {"EFLOP", 1e18},
                                                        {"K", 1e3},
                                                        {"M", 1e6},
                                                        {"T", 1e12}};
    const auto found = units.find(unit);
    if (found == units.end()) throw std::invalid_argument("no unit: " + unit);
    return std::stod(digits) * found->second;
  }

  std::string text_;
  std::size_t at_ = 0;
};

// The line with the equals sign, as one line.
std::string explained(NullDesktop& desktop) {
  std::string words = desktop.words();
  std::replace(words.begin(), words.end(), '\n', ' ');
  words.erase(std::unique(words.begin(), words.end(), [](char a, char b) { return a == ' ' && b == ' '; }),
              words.end());
  return words;
}

}  // namespace

TEST_CASE("every line that Explain puts numbers into comes to what it says, within what rounding leaves") {
  for (const char* preset :
       {"train-llama-3.1-8b-8-h100", "train-llama-3.1-405b-16384-h100", "chat-llama-2-7b-a100"}) {
    NullDesktop desktop(sim::load_scenario_preset(preset), {900, 900});
    desktop.settle();
    desktop.shell().commands().invoke("maximise.explain");
    using app::gui::Quantity;
    int lines = 0;
    for (const Quantity quantity : {Quantity::step_time, Quantity::tokens_per_second, Quantity::utilization,
                                    Quantity::parameters, Quantity::memory}) {
      desktop.shell().view().selection = {quantity, 0, ""};
      desktop.frames(2);
      const std::string line = desktop.shell().view().explained_line;
      CAPTURE(preset, static_cast<int>(quantity), line);
      if (line.empty()) continue;
      ++lines;
      // What is tested is what is drawn.
      CHECK_THAT(explained(desktop), contains(line.substr(0, 12)));
      const auto equals = line.rfind(" = ");
      REQUIRE(equals != std::string::npos);
      const double left = Arithmetic(line.substr(0, equals)).value();
      const double right = Arithmetic(line.substr(equals + 3)).value();
      CHECK(left == Approx(right).epsilon(0.012));
    }
    CHECK(lines >= 4);
  }
}

TEST_CASE("where Explain is wide the other numbers stand beside the selected one, and a click selects one") {
  const ImVec2 size = GENERATE(ImVec2(1600, 1000), ImVec2(2560, 1440));
  NullDesktop desktop(sim::load_scenario_preset("train-llama-3.1-8b-8-h100"), size);
  desktop.shell().commands().invoke("maximise.explain");
  desktop.settle();
  using app::gui::Quantity;
  REQUIRE(desktop.shell().view().selection.quantity == Quantity::step_time);
  const std::string step = desktop.shell().view().explained_line;
  float right = 0;
  for (const tests::DrawnGlyph& glyph : tests::drawn_glyphs())
    if (glyph.least.y > 80) right = std::max(right, glyph.most.x);  // below the panel's caption
  CHECK(right > 0.95f * size.x);
  const auto glyphs = tests::drawn_glyphs();
  const tests::DrawnGlyph* at = tests::drawn_at(glyphs, "Throughput");
  REQUIRE(at);
  desktop.click({at->least.x + 2, at->least.y + 2});
  CHECK(desktop.shell().view().selection.quantity == Quantity::tokens_per_second);
  CHECK(desktop.shell().view().explained_line != step);
  CHECK_THAT(explained(desktop), contains(step.substr(0, 12)));
}
