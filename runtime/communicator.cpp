#include "runtime/communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string>

#include "runtime/formats/float_formats.h"
#include "runtime/segments.h"

namespace runtime {
namespace {

// Tags of messages that are in no plan.
enum OwnTag : MessageTag { kCollective = Communicator::kFirstFreeTag, kGathered, kBarrier, kOfFirst, kSums };

// Up to this size each member sends all it has to every other member: the latency of one message, not two.
constexpr std::size_t kSmallReduction = 8192;  // bytes

// The bytes from `begin` on, of segments that follow each other.
template <class Bytes>
std::vector<Bytes> segments_between(std::span<const Bytes> segments, std::size_t begin, std::size_t bytes) {
  std::vector<Bytes> some;
  for (const Bytes segment : segments) {
    if (begin < segment.size() && bytes > 0) {
      some.push_back(segment.subspan(begin, std::min(bytes, segment.size() - begin)));
      bytes -= some.back().size();
    }
    begin -= std::min(begin, segment.size());
  }
  return some;
}

// Larger messages go in pieces: one is under way while the one before it is worked on. What is sent, received
// and added up then stays in the cache, and nobody has to keep what comes too early.
constexpr std::size_t kPiece = 128 << 10;  // bytes; whole elements of any type

// A member that waits for others, which may have no core at the moment, sends further pieces meanwhile, up to
// this much in all: then each member has work while it has a core.
constexpr std::size_t kMostAhead = 16 << 20;  // bytes

// Piece number i of segments that follow each other.
template <class Bytes>
std::vector<Bytes> piece_of(std::span<const Bytes> segments, std::size_t i) {
  return segments_between(segments, i * kPiece, kPiece);
}

template <class Bytes>
std::vector<Bytes> piece_of(const std::vector<Bytes>& segments, std::size_t i) {
  return piece_of(std::span<const Bytes>(segments), i);
}

std::size_t pieces_in(std::size_t bytes) {
  return (bytes + kPiece - 1) / kPiece;
}

// Part i of n.
template <class Bytes>
Bytes part_in(Bytes buffer, std::size_t element, std::size_t n, std::size_t i) {
  const Part part = part_of(buffer.size(), element, n, i);
  return buffer.subspan(part.begin, part.bytes);
}

template <class Bytes>
std::vector<Bytes> parts_of(std::span<const Bytes> buffers, std::size_t element, std::size_t n,
                            std::size_t i) {
  std::vector<Bytes> parts;
  parts.reserve(buffers.size());
  for (const Bytes buffer : buffers) parts.push_back(part_in(buffer, element, n, i));
  return parts;
}

// How elements are added up.
struct Fp32 {
  using Stored = float;
  using Sum = float;
  static float widen(float x) { return x; }
  static float narrow(float x) { return x; }
};
struct Fp64 {
  using Stored = double;
  using Sum = double;
  static double widen(double x) { return x; }
  static double narrow(double x) { return x; }
};
struct Bf16 {
  using Stored = std::uint16_t;
  using Sum = float;
  static float widen(std::uint16_t x) { return bf16_to_f32(x); }
  static std::uint16_t narrow(float x) { return f32_to_bf16(x); }
};
struct Fp16 {
  using Stored = std::uint16_t;
  using Sum = float;
  static float widen(std::uint16_t x) { return f16_to_f32(x); }
  static std::uint16_t narrow(float x) { return f32_to_f16(x); }
};

template <class Visit>
void with_element(sim::DType dtype, Visit visit) {
  switch (dtype) {
    case sim::DType::fp32:
      return visit(Fp32{});
    case sim::DType::fp64:
      return visit(Fp64{});
    case sim::DType::bf16:
      return visit(Bf16{});
    case sim::DType::fp16:
      return visit(Fp16{});
    default:
      throw std::logic_error("ranks add up numbers of 16 bits and more, not " +
                             std::string(sim::name(dtype)));
  }
}

// Elements i of out are read and written at once: out may be one of the others.
template <class E>
void add_two(typename E::Stored* out, const typename E::Stored* a, const typename E::Stored* b,
             std::size_t count) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) out[i] = E::narrow(E::widen(a[i]) + E::widen(b[i]));
}

// out = (or +=) the sums of what the members have, in the order of members. Segments hold whole elements.
template <class E>
void sum_in_order(const Collectives::ConstParts& of_members, std::span<const MutableBytes> out, bool adds) {
  using Stored = typename E::Stored;
  constexpr std::size_t kAtOnce = 1024;  // elements; they stay in the first cache
  std::array<typename E::Sum, kAtOnce> sum;
  std::vector<SegmentCursor<ConstBytes>> members;
  for (const std::vector<ConstBytes>& member : of_members) members.emplace_back(std::span(member));
  SegmentCursor<MutableBytes> into(out);
  for (std::size_t left = total_bytes(out) / sizeof(Stored); left > 0;) {
    std::size_t count = std::min({left, kAtOnce, into.together() / sizeof(Stored)});
    for (SegmentCursor<ConstBytes>& member : members)
      count = std::min(count, member.together() / sizeof(Stored));
    const auto next_of = [&](std::size_t m) {
      return reinterpret_cast<const Stored*>(members[m].next(count * sizeof(Stored)).data());
    };
    auto* const values = reinterpret_cast<Stored*>(into.next(count * sizeof(Stored)).data());
    left -= count;
    if (members.size() == 2 && !adds) {
      const Stored* const first = next_of(0);
      add_two<E>(values, first, next_of(1), count);
      continue;
    }
    for (std::size_t m = 0; m < members.size(); ++m) {
      const Stored* const more = next_of(m);
      if (m == 0)
        for (std::size_t i = 0; i < count; ++i) sum[i] = E::widen(more[i]);
      else
        for (std::size_t i = 0; i < count; ++i) sum[i] += E::widen(more[i]);
    }
    for (std::size_t i = 0; i < count; ++i)
      values[i] = E::narrow(adds ? E::widen(values[i]) + sum[i] : sum[i]);
  }
}

void copy_each(std::span<const MutableBytes> to, std::span<const ConstBytes> from) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::size_t bytes = std::min(to[i].size(), from[i].size());
    if (bytes > 0 && to[i].data() != from[i].data()) std::memmove(to[i].data(), from[i].data(), bytes);
  }
}

// Copies the same number of bytes between segments of different lengths.
void copy_across(std::span<const MutableBytes> to, std::span<const ConstBytes> from) {
  for_each_piece(to, from, [](MutableBytes into, ConstBytes piece) {
    std::memcpy(into.data(), piece.data(), piece.size());
  });
}

// Shards cut to the parts that they hold: a shard is padded where its buffer ends earlier.
template <class Bytes>
std::vector<Bytes> cut(std::span<const Bytes> shards, std::span<const std::size_t> lengths) {
  std::vector<Bytes> cut_shards;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (shards[i].size() < lengths[i]) throw std::logic_error("a shard is smaller than its part");
    cut_shards.push_back(shards[i].first(lengths[i]));
  }
  return cut_shards;
}

template <class Bytes>
std::vector<std::size_t> lengths_of(const std::vector<Bytes>& parts) {
  std::vector<std::size_t> lengths;
  for (const Bytes part : parts) lengths.push_back(part.size());
  return lengths;
}

}  // namespace

Transport& Communicator::transport(const Members& members) const {
  for (const std::int32_t rank : members.ranks)
    if (rank < 0 || rank >= size())
      throw std::logic_error("there is no rank " + std::to_string(rank) + " of " + std::to_string(size()));
  return *transport_;
}

void Communicator::all_reduce(const Members& members, std::span<const MutableBytes> buffers,
                              sim::DType dtype) {
  const std::size_t n = members.size();
  if (n == 1) return;
  const std::size_t element = element_size(dtype), bytes = total_bytes(buffers);
  if (bytes <= kSmallReduction) {
    begin_all_reduce(members, kCollective, buffers);
    return end_all_reduce(members, kCollective, buffers, dtype);
  }
  // Two members each send all they have: as many bytes as with sums of parts, and half the messages.
  if (n == 2)
    return sum_pieces(members, buffers, read_only(buffers), ConstParts(n, read_only(buffers)), dtype, false);
  // All segments are one buffer: each member adds up a part and sends its sums to the others, piece by piece.
  MutableParts parts(n);
  ConstParts sent(n);
  for (std::size_t m = 0; m < n; ++m) {
    const Part part = part_of(bytes, element, n, m);
    parts[m] = segments_between(buffers, part.begin, part.bytes);
    if (m != members.self) sent[m] = read_only(parts[m]);
  }
  const ConstParts sums(n, read_only(parts[members.self]));
  std::size_t pieces = 0, begun = 0;
  for (const std::vector<MutableBytes>& part : parts) pieces = std::max(pieces, pieces_in(total_bytes(part)));
  for (std::size_t i = 0; i <= pieces; ++i) {
    begun = send_ahead(members, sent, begun, i, pieces);
    sum_piece(members, piece_of(parts[members.self], i), piece_of(sums[members.self], i), dtype, false);
    send_piece(members, kSums, sums, i);
    if (i > 0) receive_piece(members, kSums, parts, i - 1);
  }
}

void Communicator::begin_all_reduce(const Members& members, MessageTag tag,
                                    std::span<const MutableBytes> buffers) {
  const std::vector<ConstBytes> own = read_only(buffers);
  for (std::size_t step = 1; step < members.size(); ++step)
    transport(members).send(members.ranks[(members.self + step) % members.size()], tag, own);
}

void Communicator::end_all_reduce(const Members& members, MessageTag tag,
                                  std::span<const MutableBytes> buffers, sim::DType dtype) {
  sum_of_members(members, tag, buffers, read_only(buffers), dtype, false);
}

void Communicator::sum_of_members(const Members& members, MessageTag tag, std::span<const MutableBytes> out,
                                  const std::vector<ConstBytes>& own, sim::DType dtype, bool adds) {
  const std::size_t bytes = total_bytes(own);
  ConstParts of_members(members.size());
  for (std::size_t m = 0; m < members.size(); ++m)
    of_members[m] =
        m == members.self ? own : std::vector{transport(members).view(members.ranks[m], tag, bytes)};
  with_element(dtype, [&]<class E>(E) { sum_in_order<E>(of_members, out, adds); });
}

void Communicator::reduce_scatter(const Members& members, std::span<const MutableBytes> shards,
                                  std::span<const ConstBytes> buffers, sim::DType dtype, bool adds) {
  const std::size_t n = members.size(), element = element_size(dtype);
  const std::vector<ConstBytes> own = parts_of(buffers, element, n, members.self);
  const std::vector<MutableBytes> out = cut(shards, lengths_of(own));
  ConstParts sent(n);
  for (std::size_t j = 0; j < n; ++j)
    if (j != members.self) sent[j] = parts_of(buffers, element, n, j);
  sum_pieces(members, out, own, sent, dtype, adds);
}

void Communicator::send_piece(const Members& members, MessageTag tag, const ConstParts& parts,
                              std::size_t i) {
  const std::size_t n = members.size();
  for (std::size_t step = 1; step < n; ++step) {
    const std::size_t j = (members.self + step) % n;
    if (const std::vector<ConstBytes> piece = piece_of(parts[j], i); !piece.empty())
      transport(members).send(members.ranks[j], tag, piece);
  }
}

void Communicator::receive_piece(const Members& members, MessageTag tag, const MutableParts& parts,
                                 std::size_t i) {
  const std::size_t n = members.size();
  for (std::size_t step = 1; step < n; ++step) {
    const std::size_t from = (members.self + n - step) % n;
    if (const std::vector<MutableBytes> piece = piece_of(parts[from], i); !piece.empty())
      transport(members).receive(members.ranks[from], tag, piece);
  }
}

std::size_t Communicator::send_ahead(const Members& members, const ConstParts& parts, std::size_t begun,
                                     std::size_t i, std::size_t pieces) {
  const auto waits = [&] {
    for (std::size_t m = 0; m < members.size(); ++m)
      if (m != members.self && !transport(members).has_come(members.ranks[m], kCollective)) return true;
    return false;
  };
  const std::size_t most = i + 1 + kMostAhead / (members.size() * kPiece);
  while (begun < pieces && (begun <= i + 1 || (begun < most && waits())))
    send_piece(members, kCollective, parts, begun++);
  return begun;
}

void Communicator::sum_piece(const Members& members, std::span<const MutableBytes> out,
                             const std::vector<ConstBytes>& own, sim::DType dtype, bool adds) {
  if (!own.empty()) sum_of_members(members, kCollective, out, own, dtype, adds);
}

void Communicator::sum_pieces(const Members& members, std::span<const MutableBytes> out,
                              const std::vector<ConstBytes>& own, const ConstParts& sent, sim::DType dtype,
                              bool adds) {
  std::size_t pieces = pieces_in(total_bytes(own)), begun = 0;
  for (const std::vector<ConstBytes>& part : sent) pieces = std::max(pieces, pieces_in(total_bytes(part)));
  for (std::size_t i = 0; i < pieces; ++i) {
    begun = send_ahead(members, sent, begun, i, pieces);
    sum_piece(members, piece_of(out, i), piece_of(own, i), dtype, adds);
  }
}

void Communicator::swap_pieces(const Members& members, const MutableParts& received, const ConstParts& sent) {
  const std::size_t n = members.size();
  std::size_t pieces = 0, begun = 0;
  for (std::size_t m = 0; m < n; ++m)
    if (m != members.self)
      pieces = std::max({pieces, pieces_in(total_bytes(received[m])), pieces_in(total_bytes(sent[m]))});
  for (std::size_t i = 0; i < pieces; ++i) {
    begun = send_ahead(members, sent, begun, i, pieces);
    receive_piece(members, kCollective, received, i);
  }
}

void Communicator::all_gather(const Members& members, std::span<const MutableBytes> buffers,
                              std::span<const ConstBytes> shards, sim::DType dtype) {
  const std::size_t n = members.size(), element = element_size(dtype);
  const std::vector<MutableBytes> place = parts_of(buffers, element, n, members.self);
  const std::vector<ConstBytes> own = cut(shards, lengths_of(place));
  copy_each(place, own);
  MutableParts received(n);
  for (std::size_t m = 0; m < n; ++m) received[m] = parts_of(buffers, element, n, m);
  swap_pieces(members, received, ConstParts(n, own));
}

void Communicator::all_to_all(const Members& members, MutableBytes out, ConstBytes inp) {
  const std::size_t n = members.size(), part = inp.size() / n;
  if (out.size() != inp.size() || part * n != inp.size())
    throw std::logic_error("an all-to-all of " + std::to_string(n) + " ranks has equal parts");
  std::memcpy(out.data() + members.self * part, inp.data() + members.self * part, part);
  MutableParts received(n);
  ConstParts sent(n);
  for (std::size_t m = 0; m < n; ++m) {
    received[m] = {out.subspan(m * part, part)};
    sent[m] = {inp.subspan(m * part, part)};
  }
  swap_pieces(members, received, sent);
}

void Communicator::exchange_parts(const Members& members, const MutableParts& out, const ConstParts& inp) {
  copy_across(out[members.self], inp[members.self]);
  swap_pieces(members, out, inp);
}

void Communicator::sum_parts(const Members& members, std::span<const MutableBytes> out, const ConstParts& inp,
                             sim::DType dtype) {
  ConstParts sent = inp;
  sent[members.self].clear();
  sum_pieces(members, out, inp[members.self], sent, dtype, false);
}

void Communicator::exchange(const Members& members, std::span<const MutableBytes> out,
                            std::span<const ConstBytes> inp) {
  const std::size_t n = members.size();
  if (n == 1) return copy_each(out, inp);
  MutableParts received(n);
  ConstParts sent(n);
  sent[(members.self + 1) % n].assign(inp.begin(), inp.end());
  received[(members.self + n - 1) % n].assign(out.begin(), out.end());
  swap_pieces(members, received, sent);
}

MutableBytes Communicator::memory(std::size_t slot, std::size_t bytes) {
  std::vector<std::byte>& memory = memory_[slot];
  if (memory.size() < bytes) memory.resize(bytes);
  return MutableBytes(memory).first(bytes);
}

void Communicator::copy(std::span<const MutableBytes> to, std::span<const ConstBytes> from) {
  copy_across(to, from);
}

void Communicator::send(std::int32_t to, MessageTag tag, ConstBytes buffer) {
  transport({{to}, 0}).send(to, tag, std::span(&buffer, 1));
}

void Communicator::receive(std::int32_t from, MessageTag tag, MutableBytes buffer) {
  transport({{from}, 0}).receive(from, tag, std::span(&buffer, 1));
}

std::vector<std::vector<std::byte>> Communicator::gather_to_first(ConstBytes own) {
  std::uint64_t length = own.size();
  const auto length_bytes = std::as_writable_bytes(std::span(&length, 1));
  if (rank() > 0) {
    const ConstBytes of_length = length_bytes;
    transport_->send(0, kGathered, std::span(&of_length, 1));
    transport_->send(0, kGathered, std::span(&own, 1));
    return {};
  }
  std::vector<std::vector<std::byte>> all{{own.begin(), own.end()}};
  for (std::int32_t from = 1; from < size(); ++from) {
    transport_->receive(from, kGathered, std::span(&length_bytes, 1));
    const MutableBytes into(all.emplace_back(length));
    transport_->receive(from, kGathered, std::span(&into, 1));
  }
  return all;
}

double Communicator::of_first(double own) {
  const ConstBytes sent = std::as_bytes(std::span(&own, 1));
  const MutableBytes received = std::as_writable_bytes(std::span(&own, 1));
  if (rank() > 0) transport_->receive(0, kOfFirst, std::span(&received, 1));
  for (std::int32_t other = 1; rank() == 0 && other < size(); ++other)
    transport_->send(other, kOfFirst, std::span(&sent, 1));
  return own;
}

bool Communicator::any(bool own) {
  if (size() == 1) return own;
  const double said = own ? 1 : 0;
  std::vector<double> all(static_cast<std::size_t>(size()));
  const MutableBytes gathered = std::as_writable_bytes(std::span(all));
  const ConstBytes own_bytes = std::as_bytes(std::span(&said, 1));
  all_gather(everyone(), std::span(&gathered, 1), std::span(&own_bytes, 1), sim::DType::fp64);
  return std::ranges::count(all, 0) < size();
}

void Communicator::barrier() {
  std::byte nothing{};
  const ConstBytes sent(&nothing, 1);
  const MutableBytes received(&nothing, 1);
  for (std::int32_t other = 1; rank() == 0 && other < size(); ++other)
    transport_->receive(other, kBarrier, std::span(&received, 1));
  if (rank() > 0) {
    transport_->send(0, kBarrier, std::span(&sent, 1));
    transport_->receive(0, kBarrier, std::span(&received, 1));
  }
  for (std::int32_t other = 1; rank() == 0 && other < size(); ++other)
    transport_->send(other, kBarrier, std::span(&sent, 1));
}

}  // namespace runtime
