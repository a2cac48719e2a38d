// A stream of points that costs the same to keep and to draw however long it grows: when it is full,
// neighbours are merged into buckets that keep their least and greatest point, so that no spike is lost.
#pragma once
#include <cstddef>
#include <vector>

namespace app::gui {

struct Point {
  double x = 0, y = 0;
};

class Series {
 public:
  void append(double x, double y);

  std::size_t size() const { return count_; }  // points ever appended
  Point last() const { return last_; }         // exact
  double least() const { return least_; }
  double greatest() const { return greatest_; }
  // In order of x, at most 2 * kBuckets.
  std::vector<Point> points() const;

 private:
  static constexpr std::size_t kBuckets = 512;
  struct Bucket {
    Point least, greatest;
    std::size_t points = 0;
  };
  static Bucket merge(const Bucket& a, const Bucket& b);

  std::vector<Bucket> buckets_;
  std::size_t points_in_bucket_ = 1;  // that a bucket holds before the next begins
  std::size_t count_ = 0;
  Point last_;
  double least_ = 0, greatest_ = 0;
};

}  // namespace app::gui
