#include "sim/format.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "tests/sim/random_scenario.h"
#include "tests/support/catch.h"

using namespace sim;

TEST_CASE("quantities read as people write them") {
  CHECK(format(Bytes{0}) == "0 B");
  CHECK(format(Bytes{512}) == "512 B");
  CHECK(format(Bytes{1023}) == "1,023 B");
  CHECK(format(Bytes{1024}) == "1.00 KiB");
  CHECK(format(gib(61.4)) == "61.4 GiB");
  CHECK(format(gib(80)) == "80.0 GiB");
  CHECK(format(gib(6480)) == "6.33 TiB");
  CHECK(format(Bytes{-2048}) == "-2.00 KiB");

  CHECK(format(Seconds{0}) == "0 ns");
  CHECK(format(us(2.5)) == "2.50 \u00b5s");
  CHECK(format(Seconds{9.42}) == "9.42 s");
  CHECK(format(Seconds{0.0314}) == "31.4 ms");
  CHECK(format(Seconds{90}) == "90.0 s");
  CHECK(format(Seconds{600}) == "10.0 min");
  CHECK(format(Seconds{66 * 86400.0}) == "66.0 days");

  CHECK(format(Flops{3.8e25}) == "38,000 ZFLOP");
  CHECK(format(Flops{51.4e9}) == "51.4 GFLOP");
  CHECK(format(tflops(312)) == "312 TFLOP/s");
  CHECK(format(tflops(2250)) == "2.25 PFLOP/s");
  CHECK(format(gb_per_s(3350)) == "3,350 GB/s");
  CHECK(format(gb_per_s(12.8)) == "12.8 GB/s");
  CHECK(format(gb_per_s(19000)) == "19.0 TB/s");

  CHECK(format_count(8'030'261'248) == "8,030,261,248");
  CHECK(format_count(-1234) == "-1,234");
  CHECK(format_count(999) == "999");
  CHECK(format_count(std::numeric_limits<std::int64_t>::min()) == "-9,223,372,036,854,775,808");
  CHECK(format_short(8.03e9) == "8.03B");
  CHECK(format_short(124'439'808) == "124M");
  CHECK(format_short(50257) == "50.3K");
  CHECK(format_short(12) == "12");
  CHECK(format_percent(0.712) == "71.2 %");
  CHECK(format_percent(1.32) == "132 %");
  CHECK(format_percent(std::nan("")) == "n/a");
  CHECK(format(Seconds{std::nan("")}) == "n/a");
}

TEST_CASE("a number that rounds up to the next unit or digit is written there") {
  CHECK(format(Bytes{1024 * 1024 - 1}) == "1.00 MiB");
  CHECK(format(Flops{999.9}) == "1.00 kFLOP");
  CHECK(format(Flops{9.996e9}) == "10.0 GFLOP");
  CHECK(format(Flops{99.96e9}) == "100 GFLOP");
  CHECK(format(Flops{999.96e9}) == "1.00 TFLOP");
  CHECK(format_short(999'999) == "1.00M");
}

TEST_CASE("what is written is within half a unit of its third digit") {
  std::mt19937_64 random(13);
  for (int i = 0; i < 2000; ++i) {
    const double value = draw_magnitude(random, 0, 24);
    const std::string text = format(Flops{value});
    CAPTURE(value, text);
    double scale = 1;
    for (const char prefix : std::string("kMGTPEZ")) {
      scale *= 1000;
      if (text.find(std::string(" ") + prefix + "FLOP") == std::string::npos) continue;
      std::string digits = text.substr(0, text.find(' '));
      std::erase(digits, ',');
      CHECK(std::stod(digits) * scale == Approx(value).epsilon(0.005));
      CHECK(digits.size() <= 4);
    }
  }
}

TEST_CASE("counts are read as people type them") {
  const auto read = [](const std::string& text, bool binary_k = false) -> std::int64_t {
    std::int64_t value = -1;
    return parse_count(text, value, binary_k) ? value : -1;
  };
  CHECK(read("70B") == 70'000'000'000);
  CHECK(read("1.5T") == 1'500'000'000'000);
  CHECK(read("8k") == 8000);
  CHECK(read("8k", true) == 8192);
  CHECK(read("128K", true) == 131072);
  CHECK(read("80GiB") == std::int64_t{80} << 30);
  CHECK(read(" 80 GB ") == 80'000'000'000);
  CHECK(read("8,030,261,248") == 8'030'261'248);
  CHECK(read("8.030261248B") == 8'030'261'248);
  CHECK(read("9223372036854775807") == std::numeric_limits<std::int64_t>::max());
  CHECK(read("0") == 0);
  for (const char* wrong : {"", " ", "k", "-5", "1.5", "1.2345k", "12x", "1e9", "9223372036854775808",
                            "1.2.3", "10000000T", "0x10", "1 2", ".", "nan"}) {
    CAPTURE(wrong);
    CHECK(read(wrong) == -1);
  }
}

TEST_CASE("a count written with separators is read as the same count") {
  std::mt19937_64 random(14);
  for (int i = 0; i < 1000; ++i) {
    const auto n = static_cast<std::int64_t>(draw_magnitude(random, 0, 18));
    std::int64_t again = -1;
    REQUIRE(parse_count(format_count(n), again));
    CHECK(again == n);
  }
}
