// How collectives see memory: buffers divided over ranks, and the same bytes in segments of other lengths.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "runtime/transport.h"
#include "sim/dtype.h"

namespace runtime {

inline std::size_t element_size(sim::DType dtype) {
  return static_cast<std::size_t>(std::max<std::int64_t>(sim::bits(dtype) / 8, 1));
}

// Part i of n of a buffer, as collectives.h has it, in bytes.
struct Part {
  std::size_t begin, bytes;
};
inline Part part_of(std::size_t bytes, std::size_t element, std::size_t n, std::size_t i) {
  const std::size_t count = bytes / element, part = (count + n - 1) / n;
  const std::size_t begin = std::min(count, i * part), end = std::min(count, begin + part);
  return {begin * element, (end - begin) * element};
}

template <class Segments>
std::size_t total_bytes(const Segments& segments) {
  std::size_t bytes = 0;
  for (const auto& segment : segments) bytes += segment.size();
  return bytes;
}

inline std::vector<ConstBytes> read_only(std::span<const MutableBytes> segments) {
  return {segments.begin(), segments.end()};
}

// Calls copy(to, from) in order on pieces of equal length, each within one segment of `to` and one of `from`.
// Throws std::logic_error where `to` is shorter in total.
template <class Copy>
void for_each_piece(std::span<const MutableBytes> to, std::span<const ConstBytes> from, const Copy& copy) {
  std::size_t next = 0, done = 0;  // of `to`
  for (ConstBytes rest : from)
    while (!rest.empty()) {
      if (next == to.size()) throw std::logic_error("a part is smaller than what comes");
      const MutableBytes room = to[next].subspan(done);
      const std::size_t bytes = std::min(room.size(), rest.size());
      if (bytes > 0) copy(room.first(bytes), rest.first(bytes));
      rest = rest.subspan(bytes);
      done += bytes;
      if (bytes == room.size()) ++next, done = 0;
    }
}

// Goes through segments that follow each other.
template <class Bytes>
class SegmentCursor {
 public:
  explicit SegmentCursor(std::span<const Bytes> segments) : segments_(segments) {}

  // How many bytes are left in the current segment; 0 at the end.
  std::size_t together() {
    while (!segments_.empty() && done_ == segments_.front().size())
      segments_ = segments_.subspan(1), done_ = 0;
    return segments_.empty() ? 0 : segments_.front().size() - done_;
  }
  // Takes the next `bytes` bytes; requires bytes <= together().
  Bytes next(std::size_t bytes) {
    const Bytes piece = segments_.front().subspan(done_, bytes);
    done_ += bytes;
    return piece;
  }
  // Calls use(piece) on the next `bytes` bytes, segment by segment. std::logic_error where fewer remain.
  template <class Use>
  void take(std::size_t bytes, const Use& use) {
    while (bytes > 0) {
      const std::size_t there = std::min(bytes, together());
      if (there == 0) throw std::logic_error("segments have fewer bytes than are taken");
      use(next(there));
      bytes -= there;
    }
  }

 private:
  std::span<const Bytes> segments_;
  std::size_t done_ = 0;  // of the first
};
template <class Bytes>
SegmentCursor(std::span<const Bytes>) -> SegmentCursor<Bytes>;

}  // namespace runtime
