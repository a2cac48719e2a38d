#include "sim/foreign_text.h"

#include <string>

#include "tests/support/catch.h"

TEST_CASE("JSON of a hundred levels is read, deeper is refused where it gets too deep") {
  const auto nested = [](int levels) {
    return std::string(static_cast<std::size_t>(levels), '[') +
           std::string(static_cast<std::size_t>(levels), ']');
  };
  CHECK_FALSE(sim::nested_too_deep(nested(100)));
  CHECK(sim::nested_too_deep(nested(101)) == 101u);
  // Brackets in strings open nothing, whatever is escaped in them.
  CHECK_FALSE(sim::nested_too_deep("{\"a\\\"" + nested(200) + "\": 1}"));
}

TEST_CASE("control characters and bytes that are no UTF-8 are shown, other text stays as it is") {
  const std::string plain = "naïve 東京 \xf0\x9f\x98\x80\tdone\n";
  CHECK(sim::visible(plain) == plain);
  CHECK(sim::visible("\x1b[31m\x7f\r") == "\\x1b[31m\\x7f\\x0d");
  CHECK(sim::visible("\x9b"
                     "31m") == "\\x9b31m");  // a control byte of Latin-1
  CHECK(sim::visible("\xc2\x9b"
                     "31m") == "\\u009b31m");                         // the same as UTF-8
  CHECK(sim::visible("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // half a surrogate pair
  CHECK(sim::visible("\xe6\x9d") == "\\xe6\\x9d");                    // cut off
  CHECK(sim::visible("\xc0\xaf") == "\\xc0\\xaf");                    // longer than needed
  CHECK(sim::visible("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
}
