// What holds of every panel and any scenario.
#include <cmath>
#include <string>

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

// Shares of a whole; a change, an error or a ratio is none.
bool is_share_of_whole(const FigureColumn& column) {
  return column.measure == Measure::share && column.name.find("change") == std::string::npos &&
         column.name.find("error") == std::string::npos;
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
      if (is_share_of_whole(table.columns[i]))
        check_share(*number);
      else if (measure != Measure::share && measure != Measure::plain)
        CHECK(*number >= 0);
    }
  }
}

}  // namespace

TEST_CASE(
    "no panel shows a number below 0 that cannot be, nor a share above 100 %, of 300 random scenarios") {
  tests::NullDesktop desktop(tests::small_scenario(), {1600, 1000});
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
    for (const char* panel : {"overview", "memory", "roofline", "pipeline", "communication"})
      for (const PanelFigures& of : shell.figures(panel))
        for (const Figure& figure : of.figures) {
          CAPTURE(panel);
          check(figure);
        }
    const std::string words = desktop.words();
    for (const char* impossible : {"-9,223", "nan", "inf ", "-0.0", "2147483647"}) {
      const std::size_t at = words.find(impossible);
      INFO(words.substr(at == std::string::npos || at < 60 ? 0 : at - 60, 120));
      CHECK(at == std::string::npos);
    }
  }
  CHECK(shown == 300);
}
