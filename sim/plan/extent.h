// Sizes that may depend on run-time integers. A block is written once; an action binds the variables.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>

namespace sim {

// What changes from action to action without changing the block.
struct Variables {
  std::int64_t batch = 1;         // sequences
  std::int64_t query_length = 1;  // new tokens a sequence
  std::int64_t kv_length = 1;     // tokens that attention sees at the end of the action, new ones included
  bool begins_gradients = false;  // what Access::accumulate does: nothing in the step has written these yet
  auto operator<=>(const Variables&) const = default;
};

// A monomial: factor * batch^a * query_length^b * kv_length^c / divisor; validate() sees to it that the
// division is exact. Where a run may need more than is expected, `most` is the factor that sizes memory.
struct Extent {
  std::int64_t factor = 1;
  std::int64_t most = 0;  // 0: factor
  std::int8_t batch = 0, query_length = 0, kv_length = 0;
  std::int32_t divisor = 1;

  constexpr Extent() = default;
  constexpr Extent(std::int64_t f) : factor(f) {}  // NOLINT: a plain number is an extent
  constexpr Extent(std::int64_t f, int b, int q, int k)
      : factor(f),
        batch(static_cast<std::int8_t>(b)),
        query_length(static_cast<std::int8_t>(q)),
        kv_length(static_cast<std::int8_t>(k)) {}

  constexpr std::int64_t value(const Variables& v) const { return value_of(factor, v); }
  constexpr std::int64_t most_value(const Variables& v) const { return value_of(most_factor(), v); }
  constexpr std::int64_t most_factor() const { return most > 0 ? most : factor; }
  constexpr bool operator==(const Extent&) const = default;

 private:
  constexpr std::int64_t value_of(std::int64_t r, const Variables& v) const {
    for (int i = 0; i < batch; ++i) r *= v.batch;
    for (int i = 0; i < query_length; ++i) r *= v.query_length;
    for (int i = 0; i < kv_length; ++i) r *= v.kv_length;
    return divisor == 1 ? r : r / divisor;  // most are, and a division takes as long as all the rest
  }
};

constexpr Extent operator*(Extent a, Extent b) {
  Extent product{a.factor * b.factor, a.batch + b.batch, a.query_length + b.query_length,
                 a.kv_length + b.kv_length};
  product.divisor = a.divisor * b.divisor;
  if (a.most > 0 || b.most > 0) product.most = a.most_factor() * b.most_factor();
  return product;
}

constexpr Extent operator/(Extent a, std::int32_t divisor) {
  a.divisor *= divisor;
  return a;
}

// The dimensions of a tensor, outermost first: at most four. More throw std::length_error.
class Shape {
 public:
  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<Extent> dimensions) : size_(dimensions.size()) {
    if (size_ > dimensions_.size()) throw std::length_error("a tensor of more than four dimensions");
    std::size_t i = 0;
    for (const Extent& e : dimensions) dimensions_[i++] = e;
  }
  constexpr std::size_t size() const { return size_; }
  constexpr Extent& operator[](std::size_t i) { return dimensions_[i]; }
  constexpr const Extent& operator[](std::size_t i) const { return dimensions_[i]; }
  constexpr const Extent& front() const { return dimensions_[0]; }
  constexpr const Extent& back() const { return dimensions_[size_ - 1]; }
  constexpr const Extent* begin() const { return dimensions_.data(); }
  constexpr const Extent* end() const { return dimensions_.data() + size_; }
  constexpr bool operator==(const Shape&) const = default;

 private:
  std::array<Extent, 4> dimensions_{};
  std::size_t size_ = 0;
};

inline constexpr Extent kBatch{1, 1, 0, 0};
inline constexpr Extent kQueryLength{1, 0, 1, 0};
inline constexpr Extent kKvLength{1, 0, 0, 1};
inline constexpr Extent kRows{1, 1, 1, 0};  // batch * query_length: tokens

}  // namespace sim
