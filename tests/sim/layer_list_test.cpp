#include "sim/scenario/layer_list.h"

#include "tests/support/catch.h"

using sim::layer_list;
using sim::layers_listed;

TEST_CASE("a list of layers reads back as it was written, neighbours as ranges") {
  for (const std::string text : {"", "0", "7", "0-3", "0-3,7", "1,3,5-6", "0,2-65535"})
    CHECK(layer_list(layers_listed(text).value()) == text);
  CHECK(layers_listed("2,3,4").value() == layers_listed("2-4").value());
}

TEST_CASE("a list of layers that is none, or not ascending, is refused") {
  for (const char* const text :
       {"x", "-1", "3-1", "1,1", "4,2", "1-3,3", "1,", ",1", "1-", "1 2", "70000", "0-99999999999999999999"})
    CHECK(!layers_listed(text));
}
