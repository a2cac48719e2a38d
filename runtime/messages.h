// What each way to carry messages does with one that has arrived.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

#include "runtime/segments.h"
#include "runtime/transport.h"

namespace runtime {

// std::logic_error where the rank waits for another number of bytes than the other one sent.
inline void require_size(std::int32_t rank, std::size_t awaited, std::int32_t from, std::uint64_t sent) {
  if (sent != awaited)
    throw std::logic_error("rank " + std::to_string(rank) + " waits for " + std::to_string(awaited) +
                           " bytes, rank " + std::to_string(from) + " sent " + std::to_string(sent));
}

// The next bytes of the parts become these.
inline void fill(SegmentCursor<MutableBytes>& parts, ConstBytes bytes) {
  parts.take(bytes.size(), [&](MutableBytes piece) {
    std::memcpy(piece.data(), bytes.data(), piece.size());
    bytes = bytes.subspan(piece.size());
  });
}

// A whole message to where it is wanted.
inline void store(std::int32_t rank, std::span<const MutableBytes> parts, std::int32_t from,
                  ConstBytes message) {
  require_size(rank, total_bytes(parts), from, message.size());
  SegmentCursor into(parts);
  fill(into, message);
}

}  // namespace runtime
