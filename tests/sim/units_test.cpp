#include "sim/units.h"

#include <random>

#include "tests/sim/random_scenario.h"
#include "tests/support/catch.h"

using namespace sim;

namespace {

template <class A, class B>
concept Addable = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept Divisible = requires(A a, B b) {
  a / b;
};
template <class A, class B>
concept Multipliable = requires(A a, B b) {
  a* b;
};

}  // namespace

TEST_CASE("only operators that mean something exist") {
  STATIC_REQUIRE(Addable<Bytes, Bytes>);
  STATIC_REQUIRE_FALSE(Addable<Bytes, Seconds>);
  STATIC_REQUIRE_FALSE(Addable<Bytes, int>);
  STATIC_REQUIRE_FALSE(Addable<Flops, Bytes>);
  STATIC_REQUIRE_FALSE(Addable<FlopsPerSecond, Flops>);
  STATIC_REQUIRE(Divisible<Bytes, BytesPerSecond>);
  STATIC_REQUIRE_FALSE(Divisible<Bytes, FlopsPerSecond>);
  STATIC_REQUIRE_FALSE(Divisible<Seconds, Bytes>);
  STATIC_REQUIRE_FALSE(Multipliable<Bytes, Bytes>);
  STATIC_REQUIRE_FALSE(Multipliable<Seconds, Seconds>);
}

TEST_CASE("an amount over a rate is a time, and over that time the rate again") {
  std::mt19937_64 random(11);
  for (int i = 0; i < 1000; ++i) {
    const Bytes bytes{draw(random, 1, std::int64_t{1} << 50)};
    const Flops flops{draw_magnitude(random, 0, 25)};
    const BytesPerSecond bandwidth{draw_magnitude(random, 6, 13)};
    const FlopsPerSecond rate{draw_magnitude(random, 9, 16)};
    CHECK((bytes / (bytes / bandwidth)).value == Approx(bandwidth.value));
    CHECK((flops / (flops / rate)).value == Approx(rate.value));
    // At the ridge point arithmetic and traffic take the same time.
    const double intensity = rate / bandwidth;
    const Flops at_ridge{intensity * static_cast<double>(bytes.value)};
    CHECK((at_ridge / rate).value == Approx((bytes / bandwidth).value));
    CHECK(at_ridge / bytes == Approx(intensity));
  }
}

TEST_CASE("bytes are exact: adding and taking away leaves what was there") {
  std::mt19937_64 random(12);
  for (int i = 0; i < 1000; ++i) {
    const Bytes a{draw(random, 0, std::int64_t{1} << 60)}, b{draw(random, 0, std::int64_t{1} << 60)};
    CHECK(a + b - b == a);
    Bytes sum = a;
    sum += b;
    sum -= a;
    CHECK(sum == b);
  }
}

TEST_CASE("constructors scale as their names say") {
  CHECK(gib(1.5).value == std::int64_t{3} << 29);
  CHECK(gb_per_s(3350).value == 3.35e12);
  CHECK(tflops(989).value == 9.89e14);
  CHECK(us(2.5).value == Approx(2.5e-6));
  CHECK(tflops(312) / gb_per_s(2039) == Approx(153.016).epsilon(1e-5));  // ridge point of an A100 80 GB
}
