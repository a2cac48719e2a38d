#include "app/counted.h"

#include <utility>

#include "tests/support/catch.h"

TEST_CASE("things are said with how many there are, one of them alone without a plural's ending") {
  CHECK(app::counted(0, "step") == "0 steps");
  CHECK(app::counted(1, "lesson") == "1 lesson");
  CHECK(app::counted(2, "lesson") == "2 lessons");
  CHECK(app::counted(1, "micro-batch") == "1 micro-batch");
  CHECK(app::counted(1024, "micro-batch") == "1,024 micro-batches");
}

TEST_CASE("a place in a row has the ending that is spoken") {
  const std::pair<int, const char*> places[] = {{1, "1st"},   {2, "2nd"},   {3, "3rd"},    {4, "4th"},
                                                {11, "11th"}, {12, "12th"}, {13, "13th"},  {20, "20th"},
                                                {22, "22nd"}, {32, "32nd"}, {111, "111th"}};
  for (const auto& [n, words] : places) CHECK(app::ordinal(n) == words);
}
