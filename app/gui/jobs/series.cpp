#include "app/gui/jobs/series.h"

#include <algorithm>

namespace app::gui {

Series::Bucket Series::merge(const Bucket& a, const Bucket& b) {
  return {a.least.y <= b.least.y ? a.least : b.least, a.greatest.y >= b.greatest.y ? a.greatest : b.greatest,
          a.points + b.points};
}

void Series::append(double x, double y) {
  last_ = {x, y};
  least_ = count_ == 0 ? y : std::min(least_, y);
  greatest_ = count_ == 0 ? y : std::max(greatest_, y);
  ++count_;
  const Bucket point{last_, last_, 1};
  if (!buckets_.empty() && buckets_.back().points < points_in_bucket_) {
    buckets_.back() = merge(buckets_.back(), point);
    return;
  }
  if (buckets_.size() == kBuckets) {
    for (std::size_t i = 0; i < kBuckets / 2; ++i) buckets_[i] = merge(buckets_[2 * i], buckets_[2 * i + 1]);
    buckets_.resize(kBuckets / 2);
    points_in_bucket_ *= 2;
  }
  buckets_.push_back(point);
}

std::vector<Point> Series::points() const {
  std::vector<Point> result;
  result.reserve(buckets_.size() * 2);
  for (const Bucket& bucket : buckets_) {
    const bool least_first = bucket.least.x <= bucket.greatest.x;
    result.push_back(least_first ? bucket.least : bucket.greatest);
    if (bucket.points > 1) result.push_back(least_first ? bucket.greatest : bucket.least);
  }
  return result;
}

}  // namespace app::gui
