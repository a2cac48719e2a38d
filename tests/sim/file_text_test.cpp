// Files that are read whole: how much of one is read.
#include "sim/file_text.h"

#include "sim/preset_error.h"
#include "tests/support/catch.h"

TEST_CASE("a file that never ends is refused by its name once it is longer than what is read") {
  try {
    sim::file_text("/dev/zero", 1'000'000);
    FAIL("read /dev/zero to its end");
  } catch (const sim::PresetError& error) {
    CHECK_THAT(error.what(), contains("/dev/zero: goes on after byte 1000000"));
  }
  CHECK(sim::file_text("/dev/null", 0) == "");
}
