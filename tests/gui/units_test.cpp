// The units of memory on screen, and reduced motion: kept, reachable from the palette, and true everywhere.
#include <regex>

#include "app/gui/figures/text.h"
#include "sim/byte_units.h"
#include "sim/format.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace app::gui;
using tests::NullDesktop;

namespace {

// Tests after this one read GiB.
struct Restored {
  ~Restored() { sim::write_bytes_in(sim::ByteUnits::binary); }
};

}  // namespace

TEST_CASE("an amount of memory is the same number of bytes in GiB and in GB") {
  const Restored after;
  const sim::Bytes memory = GENERATE(sim::Bytes{1}, sim::Bytes{999}, sim::Bytes{1'000'000}, sim::gib(80),
                                     sim::Bytes{61'400'000'000}, sim::gib(3000));
  for (const sim::ByteUnits units : {sim::ByteUnits::binary, sim::ByteUnits::decimal}) {
    sim::write_bytes_in(units);
    const std::string words = sim::format(memory);
    CAPTURE(words);
    const std::size_t space = words.find(' ');
    double size = 0;
    for (const sim::ByteUnit& unit : sim::byte_scale())
      if (words.substr(space + 1) == unit.name) size = unit.size;
    std::string digits = words.substr(0, space);
    std::erase(digits, ',');
    CHECK(std::stod(digits) * size == Approx(static_cast<double>(memory.value)).epsilon(0.005));
  }
}

TEST_CASE("after the switch no panel says KiB, MiB, GiB or TiB of what it computes, and GB after none") {
  const Restored after;
  NullDesktop desktop(sim::load_scenario_preset("train-llama-3.1-8b-8-h100"), {1920, 1080});
  const std::regex binary("[0-9] [KMGT]iB"), decimal("[0-9] [kMGT]B($|[^/a-zA-Z])");
  // These show what others wrote: texts of lessons, columns of files, sources.
  const auto is_of_others = [](std::string_view id) {
    return id == "lessons" || id == "validation" || id == "methodology" || id == "calibrate";
  };
  const auto all_say = [&](const std::regex& units) {
    for (const PanelEntry* panel : panels()) {
      if (is_of_others(panel->id)) continue;
      desktop.shell().view().maximised = panel->id;
      desktop.settle_studies();
      const std::string words = desktop.words();
      std::smatch found;
      CAPTURE(panel->id);
      if (std::regex_search(words, found, units))
        FAIL_CHECK("says " << found.prefix().str().substr(
                                  found.prefix().str().size() > 30 ? found.prefix().str().size() - 30 : 0)
                           << found.str());
    }
  };
  all_say(decimal);
  REQUIRE(desktop.shell().commands().invoke("view.bytes"));
  all_say(binary);
  desktop.shell().view().maximised = "memory";
  desktop.settle();
  CHECK(std::regex_search(desktop.words(), decimal));
  REQUIRE(desktop.shell().commands().invoke("view.bytes"));
  desktop.settle();
  CHECK(std::regex_search(desktop.words(), binary));
}

TEST_CASE("microseconds have their sign in every panel: none says us") {
  NullDesktop desktop(tests::small_scenario(), {1920, 1080});
  // These show what others wrote: texts of lessons, sources.
  const auto is_of_others = [](std::string_view id) {
    return id == "lessons" || id == "methodology" || id == "calibrate";
  };
  const std::regex letters("([0-9] |, )us($|[^a-z_])");
  int panels_with_sign = 0;
  for (const PanelEntry* panel : panels()) {
    if (is_of_others(panel->id)) continue;
    desktop.shell().view().maximised = panel->id;
    desktop.settle_studies();
    std::string words = desktop.words();
    for (const PanelFigures& of : desktop.shell().figures(panel->id)) words += " " + to_markdown(of.figures);
    CAPTURE(panel->id);
    panels_with_sign += words.find("\u00b5s") != std::string::npos;
    std::smatch found;
    if (std::regex_search(words, found, letters))
      FAIL_CHECK("says " << found.prefix().str().substr(
                                found.prefix().str().size() > 30 ? found.prefix().str().size() - 30 : 0)
                         << found.str());
  }
  CHECK(panels_with_sign >= 3);
}

TEST_CASE("units and reduced motion are kept between starts, and stand in the palette") {
  const Restored after;
  const TemporaryFolder folder;
  {
    NullDesktop desktop;
    for (const char* id : {"view.bytes", "view.still"}) {
      const Command* command = desktop.shell().commands().find(id);
      REQUIRE(command);
      const std::string before = command->detail();
      REQUIRE(desktop.shell().commands().invoke(id));
      CHECK(command->detail() != before);
    }
    save_settings(desktop.shell().settings(), folder.path());
  }
  sim::write_bytes_in(sim::ByteUnits::binary);
  const Settings read = load_settings(folder.path());
  CHECK(read.bytes == sim::ByteUnits::decimal);
  CHECK(read.still);
  NullDesktop desktop(tests::small_scenario(), {1600, 1000}, read);
  CHECK(sim::byte_units() == sim::ByteUnits::decimal);
  CHECK(desktop.shell().view().still);
  CHECK(desktop.shell().settings() == [&] {
    Settings now = desktop.shell().settings();
    now.bytes = read.bytes;
    now.still = read.still;
    return now;
  }());
}

TEST_CASE("with reduced motion the pictures of the first start stand still: no frame is asked for") {
  Settings settings;
  settings.still = GENERATE(false, true);
  NullDesktop desktop(tests::small_scenario(), {1600, 1000}, settings);
  desktop.shell().welcome();
  desktop.settle_studies();
  REQUIRE(desktop.says("What does a language model cost"));
  CHECK(desktop.shell().changes_in().has_value() != settings.still);
}
