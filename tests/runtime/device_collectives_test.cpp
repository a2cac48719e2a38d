// Collectives of ranks whose device's memory is not the host's: by NCCL (a stand-in,
// tests/support/fake_nccl.cpp) and by way of the host, against the communicator's on the host's memory. The
// ranks are threads.
#include <cstdlib>
#include <cstring>
#include <list>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "programs.h"
#include "runtime/communicator.h"
#include "runtime/formats/float_formats.h"
#include "runtime/nccl_collectives.h"
#include "runtime/staged_collectives.h"
#include "runtime/thread_ranks.h"
#include "tests/support/catch.h"

namespace {

using runtime::ConstBytes;
using runtime::Members;
using runtime::MutableBytes;

// Memory of its own: addresses are handed out of it, and only the device's calls may touch them.
class ApartDevice final : public runtime::Device {
 public:
  std::string name() const override { return "a device with memory of its own"; }
  std::span<const sim::DType> dtypes() const override { return {}; }
  bool supports(const sim::Operation&, std::span<const sim::DType>) const override { return false; }
  sim::Bytes available() const override { return {}; }
  std::byte* allocate(sim::Bytes size) override {
    const auto bytes = static_cast<std::size_t>(size.value) / 256 * 256 + 256;
    auto* const memory = static_cast<std::byte*>(std::aligned_alloc(256, bytes));
    std::memset(memory, 0, bytes);
    return memory;
  }
  void release(std::byte* memory, sim::Bytes) noexcept override { std::free(memory); }
  sim::Bytes resident(const std::byte*, sim::Bytes size) const override { return size; }
  sim::Bytes in_use() const override { return {}; }
  void copy_to_device(std::byte* to, ConstBytes from) override { std::memcpy(to, from.data(), from.size()); }
  void copy_from_device(MutableBytes to, const std::byte* from) override {
    std::memcpy(to.data(), from, to.size());
  }
  void run(const runtime::BoundOperation&, const runtime::RunSettings&) override {}
  void record(std::size_t) override {}
  void synchronise() override {}
  void stamps(std::span<double>) const override {}
  void copy_rows(const runtime::RowsCopy& c) override {
    ++copies;
    for (std::int64_t row = 0; row < c.rows; ++row)
      std::memmove(c.to + row * c.to_stride, c.from + row * c.from_stride, static_cast<std::size_t>(c.width));
  }
  void add(std::byte* sums, const std::byte* parts, std::int64_t count, sim::DType dtype) override {
    const auto add_as = [&]<class T>(T, auto widen, auto narrow) {
      for (std::int64_t i = 0; i < count; ++i) {
        T a{}, b{};
        std::memcpy(&a, sums + i * static_cast<std::int64_t>(sizeof a), sizeof a);
        std::memcpy(&b, parts + i * static_cast<std::int64_t>(sizeof b), sizeof b);
        a = static_cast<T>(narrow(widen(a) + widen(b)));
        std::memcpy(sums + i * static_cast<std::int64_t>(sizeof a), &a, sizeof a);
      }
    };
    const auto same = [](auto x) { return x; };
    if (dtype == sim::DType::bf16)
      add_as(
          std::uint16_t{}, [](std::uint16_t x) { return runtime::bf16_to_f32(x); },
          [](float x) { return runtime::f32_to_bf16(x); });
    else
      add_as(float{}, same, same);
  }
  void queue_aside(std::size_t, std::function<void(void*)> work) override { work(nullptr); }

  int copies = 0;
};

// One drawn exchange: all ranks draw the same. What each rank's buffers hold before follows from the seed and
// the rank; small whole numbers, whose sums are exact in every order and type.
struct Drawn {
  int call = 0;
  Members members;
  sim::DType dtype = sim::DType::fp32;
  bool adds = false, in_place = false;
  std::vector<std::int64_t> counts;           // of buffers
  std::vector<std::vector<int>> part_counts;  // from, to: elements, in segments of three at most
};
constexpr int kCalls = 9;

Drawn draw(std::mt19937& random, std::int32_t ranks, std::int32_t self) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Drawn drawn;
  drawn.call = below(kCalls);
  drawn.dtype = below(2) == 0 ? sim::DType::fp32 : sim::DType::bf16;
  drawn.adds = below(2) == 0;
  drawn.in_place = below(2) == 0;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    if (rank == self) drawn.members.self = drawn.members.ranks.size();
    drawn.members.ranks.push_back(rank);
  }
  for (int buffer = 1 + below(3); buffer > 0; --buffer) drawn.counts.push_back(1 + below(40));
  drawn.part_counts.resize(static_cast<std::size_t>(ranks));
  for (auto& to : drawn.part_counts)
    for (std::int32_t rank = 0; rank < ranks; ++rank) to.push_back(below(8));
  return drawn;
}

// Buffers where they are exchanged; host memory and a device's are filled alike.
class Place {
 public:
  explicit Place(runtime::Device* device) : device_(device) {}
  ~Place() {
    for (std::byte* const block : blocks_) device_->release(block, {});
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  MutableBytes filled(std::int64_t count, sim::DType dtype, std::uint32_t seed) {
    std::vector<std::byte> host;
    std::mt19937 random(seed);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(random() % 17) - 8;
      const std::uint16_t narrow = runtime::f32_to_bf16(value);
      const auto bytes = dtype == sim::DType::bf16 ? std::as_bytes(std::span(&narrow, 1))
                                                   : std::as_bytes(std::span(&value, 1));
      host.insert(host.end(), bytes.begin(), bytes.end());
    }
    if (device_ == nullptr) {
      hosts_.push_back(std::move(host));
      views_.push_back(hosts_.back());
    } else {
      std::byte* const memory = device_->allocate({static_cast<std::int64_t>(host.size())});
      blocks_.push_back(memory);
      device_->copy_to_device(memory, host);
      views_.emplace_back(memory, host.size());
    }
    return views_.back();
  }

  std::vector<std::vector<std::byte>> contents() const {
    std::vector<std::vector<std::byte>> all;
    for (const MutableBytes view : views_) {
      all.emplace_back(view.size());
      if (device_ != nullptr)
        device_->copy_from_device(all.back(), view.data());
      else
        std::copy(view.begin(), view.end(), all.back().begin());
    }
    return all;
  }

 private:
  runtime::Device* device_;
  std::list<std::vector<std::byte>> hosts_;
  std::vector<std::byte*> blocks_;
  std::vector<MutableBytes> views_;
};

// What is in a rank's buffers after the exchange.
std::vector<std::vector<std::byte>> carry_out(runtime::Collectives& collectives, runtime::Device* device,
                                              const Drawn& drawn, std::uint32_t seed) {
  Place place(device);
  std::uint32_t next = 1000 * seed + 100 * static_cast<std::uint32_t>(drawn.members.self);
  const auto n = static_cast<std::int64_t>(drawn.members.size());
  const auto element = static_cast<std::size_t>(sim::bits(drawn.dtype) / 8);
  std::vector<MutableBytes> whole, shards;
  for (const std::int64_t count : drawn.counts) {
    whole.push_back(place.filled(count, drawn.dtype, next++));
    const std::int64_t part = (count + n - 1) / n,
                       begin = std::min(count, part * static_cast<std::int64_t>(drawn.members.self)),
                       own = std::min(count, begin + part) - begin;
    if (drawn.in_place)
      shards.push_back(whole.back().subspan(static_cast<std::size_t>(begin) * element,
                                            static_cast<std::size_t>(own) * element));
    else
      shards.push_back(place.filled(part + 2, drawn.dtype, next++));  // longer than the part
  }
  const std::vector<ConstBytes> whole_read(whole.begin(), whole.end()),
      shards_read(shards.begin(), shards.end());
  // Parts in segments of up to three elements, two apart.
  const auto segments = [&](int count) {
    std::vector<MutableBytes> parts;
    const MutableBytes room = place.filled(5 * count + 5, drawn.dtype, next++);
    for (int at = 0; at < count; at += 3)
      parts.push_back(room.subspan(static_cast<std::size_t>(at / 3 * 5) * element,
                                   static_cast<std::size_t>(std::min(3, count - at)) * element));
    return parts;
  };
  const auto self = drawn.members.self;
  switch (drawn.call) {
    case 0:
      collectives.all_reduce(drawn.members, whole, drawn.dtype);
      break;
    case 1:
      collectives.begin_all_reduce(drawn.members, 5, whole);
      collectives.end_all_reduce(drawn.members, 5, whole, drawn.dtype);
      break;
    case 2:
      collectives.reduce_scatter(drawn.members, shards, whole_read, drawn.dtype, drawn.adds);
      break;
    case 3:
      collectives.all_gather(drawn.members, whole, shards_read, drawn.dtype);
      break;
    case 4: {
      const MutableBytes out = place.filled(n * drawn.counts[0], drawn.dtype, next++),
                         inp = place.filled(n * drawn.counts[0], drawn.dtype, next++);
      collectives.all_to_all(drawn.members, out, inp);
      break;
    }
    case 5: {
      runtime::Collectives::MutableParts out;
      runtime::Collectives::ConstParts inp;
      for (std::size_t other = 0; other < drawn.members.size(); ++other) {
        out.push_back(segments(drawn.part_counts[other][self]));
        const auto sent = segments(drawn.part_counts[self][other]);
        inp.emplace_back(sent.begin(), sent.end());
      }
      collectives.exchange_parts(drawn.members, out, inp);
      break;
    }
    case 6: {
      const auto out = segments(drawn.part_counts[0][self]);
      runtime::Collectives::ConstParts inp;
      for (std::size_t other = 0; other < drawn.members.size(); ++other) {
        const auto sent = segments(drawn.part_counts[0][other]);
        inp.emplace_back(sent.begin(), sent.end());
      }
      collectives.sum_parts(drawn.members, out, inp, drawn.dtype);
      break;
    }
    case 7: {
      std::vector<MutableBytes> out;
      for (const std::int64_t count : drawn.counts) out.push_back(place.filled(count, drawn.dtype, next++));
      collectives.exchange(drawn.members, out, whole_read);
      break;
    }
    default: {
      // Each rank sends three messages to the next and takes those of the one before in another order.
      const auto next_rank = static_cast<std::int32_t>((self + 1) % drawn.members.size()),
                 before = static_cast<std::int32_t>((self + drawn.members.size() - 1) % drawn.members.size());
      const MutableBytes sent = place.filled(24, drawn.dtype, next++),
                         come = place.filled(24, drawn.dtype, next++);
      for (const std::size_t message : {0U, 1U, 2U})
        collectives.send(next_rank, 70 + message, sent.subspan(8 * element * message, 8 * element));
      for (const std::size_t message : {2U, 0U, 1U})
        collectives.receive(before, 70 + message, come.subspan(8 * element * message, 8 * element));
    }
  }
  collectives.finish();
  return place.contents();
}

}  // namespace

TEST_CASE(
    "Two to four ranks exchange by NCCL and by way of the host what the communicator exchanges: 300 drawn "
    "calls") {
  setenv("RIDGEPOINT_NCCL", RIDGEPOINT_FAKE_NCCL, 1);
  const auto ranks = GENERATE(2, 3, 4);
  std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
  std::vector<int> calls(kCalls, 0);
  runtime::run_thread_ranks(ranks, [&](runtime::Transport& transport) {
    runtime::Communicator communicator(transport);
    ApartDevice device;
    const std::int32_t self = transport.rank(), next = (self + 1) % ranks,
                       before = (self + ranks - 1) % ranks;
    const Members everyone = communicator.everyone();
    const std::pair<std::int32_t, std::int32_t> pairs[] = {{self, next}, {before, self}};
    runtime::NcclCollectives nccl(device, communicator, std::span(&everyone, 1), pairs);
    runtime::StagedCollectives staged(device, communicator);
    for (std::uint32_t seed = 1; seed <= 100; ++seed) {
      std::mt19937 random(seed);
      const Drawn drawn = draw(random, ranks, self);
      if (self == 0) ++calls[static_cast<std::size_t>(drawn.call)];
      const auto expected = carry_out(communicator, nullptr, drawn, seed);
      const auto of_seed = ": call " + std::to_string(drawn.call) + ", seed " + std::to_string(seed) + "; ";
      if (carry_out(nccl, &device, drawn, seed) != expected)
        wrong[static_cast<std::size_t>(self)] += "NCCL" + of_seed;
      if (carry_out(staged, &device, drawn, seed) != expected)
        wrong[static_cast<std::size_t>(self)] += "staged" + of_seed;
    }
  });
  for (const std::string& of_rank : wrong) CHECK(of_rank == "");
  for (const int count : calls) CHECK(count > 0);
}

TEST_CASE("Groups and pairs that NCCL was not told of are an error of the program, not a wait for ever") {
  setenv("RIDGEPOINT_NCCL", RIDGEPOINT_FAKE_NCCL, 1);
  runtime::run_thread_ranks(2, [&](runtime::Transport& transport) {
    runtime::Communicator communicator(transport);
    ApartDevice device;
    runtime::NcclCollectives nccl(device, communicator, {}, {});
    std::vector<std::byte> buffer(8);
    const MutableBytes whole(buffer);
    CHECK_THROWS_AS(nccl.all_reduce(communicator.everyone(), std::span(&whole, 1), sim::DType::fp32),
                    std::logic_error);
    CHECK_THROWS_AS(nccl.send(1 - transport.rank(), 7, buffer), std::logic_error);
  });
}

TEST_CASE("Segments that lie evenly apart are one copy of rows") {
  std::vector<std::byte> from(100), to(40);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i);
  std::vector<ConstBytes> columns;
  for (std::size_t row = 0; row < 10; ++row) columns.push_back(ConstBytes(from).subspan(row * 10 + 6, 4));
  ApartDevice device;
  const MutableBytes together(to);
  runtime::copy_segments(device, std::span(&together, 1), columns);
  CHECK(device.copies == 1);
  for (std::size_t i = 0; i < to.size(); ++i) CHECK(to[i] == from[i / 4 * 10 + 6 + i % 4]);
  CHECK_THROWS_AS(runtime::copy_segments(device, std::span(&together, 1), std::vector<ConstBytes>{from}),
                  std::logic_error);
}
