// What holds of every panel and any scenario.
#include <cmath>
#include <regex>
#include <string>
#include <vector>

#include "sim/plan/legality.h"
#include "sim/report/metrics.h"
#include "tests/gui/null_desktop.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

using namespace app::gui;

namespace {

void check_share(double share) {
  CHECK(share >= 0);
  CHECK(share <= 1 + 1e-9);
}

// What may be below 0, and above a whole.
bool is_difference(const FigureColumn& column) {
  for (const char* word : {"change", "error", "saved"})
    if (column.name.find(word) != std::string::npos) return true;
  return false;
}

void check(const Figure& figure) {
  CAPTURE(figure.title);
  const FigureTable table = table_of(figure);
  for (const auto& row : table.rows) {
    REQUIRE(row.size() == table.columns.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      const auto* number = std::get_if<double>(&row[i]);
      CAPTURE(table.columns[i].name);
      if (!number) continue;
      CHECK(std::isfinite(*number));
      const Measure measure = table.columns[i].measure;
      if (is_difference(table.columns[i])) continue;
      if (measure == Measure::share)
        check_share(*number);
      else if (measure != Measure::plain)
        CHECK(*number >= 0);
    }
  }
}

// Checks what panels show and the desktop says of 300 random scenarios, one after the other on screen.
// `see` makes a panel show what it has.
template <class See>
void check_random_scenarios(tests::NullDesktop& desktop, const std::vector<std::string>& ids,
                            const See& see) {
  Shell& shell = desktop.shell();
  const sim::Hardware hardware = sim::load_hardware_preset("h100-sxm");
  int shown = 0;
  for (unsigned seed = 0; shown < 300 && seed < 1500; ++seed) {
    sim::Scenario s = seed % 2 == 0 ? test::random_scenario(seed) : test::random_parallel_scenario(seed);
    s.hardware = hardware;
    if (!sim::validate(s).empty()) continue;
    CAPTURE(seed);
    shell.document().edit("random", s);
    desktop.settle();
    ++shown;
    for (const std::string& panel : ids) {
      CAPTURE(panel);
      see(panel);
      for (const PanelFigures& of : shell.figures(panel))
        for (const Figure& figure : of.figures) check(figure);
      const std::string words = desktop.words();
      // Words of their own: "Narayanan et al." is a source.
      static const std::regex impossible(R"((^|[^a-z])(-9,223|-?nan |-?inf |-0\.0|2147483647))");
      std::smatch found;
      if (std::regex_search(words, found, impossible)) {
        const auto at = static_cast<std::size_t>(found.position());
        FAIL_CHECK("says " << words.substr(at < 60 ? 0 : at - 60, 120));
      }
    }
  }
  CHECK(shown == 300);
}

}  // namespace

TEST_CASE(
    "no panel shows a number below 0 that cannot be, nor a share above 100 %, of 300 random scenarios") {
  tests::NullDesktop desktop(tests::small_scenario(), {1600, 1000});
  check_random_scenarios(desktop, {"overview", "memory", "roofline", "pipeline", "communication"},
                         [](const std::string&) {});
}

// With what every panel's studies find: minutes. test_gui "[whole-law]".
TEST_CASE(
    "no panel at all shows a number below 0 that cannot be, nor a share above 100 %, of 300 random scenarios",
    "[.][whole-law]") {
  tests::NullDesktop desktop(tests::small_scenario(), {1600, 1000});
  std::vector<std::string> ids;
  for (const PanelEntry* panel : panels()) ids.emplace_back(panel->id);
  check_random_scenarios(desktop, ids, [&](const std::string& panel) {
    desktop.shell().view().maximised = panel;
    desktop.settle_studies();
  });
}
