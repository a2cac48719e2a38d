#include "runtime/communicator.h"

#include <cstring>
#include <stdexcept>

namespace runtime {
namespace {

class SingleRank final : public Communicator {
 public:
  std::int32_t rank() const override { return 0; }
  std::int32_t size() const override { return 1; }

  void all_reduce(const sim::Group& group, std::span<std::byte>, sim::DType) override { alone(group); }
  void reduce_scatter(const sim::Group& group, std::span<std::byte> shard, std::span<const std::byte> buffer,
                      sim::DType) override {
    copy(group, shard, buffer);
  }
  void all_gather(const sim::Group& group, std::span<std::byte> buffer,
                  std::span<const std::byte> shard) override {
    copy(group, buffer, shard);
  }
  void all_to_all(const sim::Group& group, std::span<std::byte> out,
                  std::span<const std::byte> inp) override {
    copy(group, out, inp);
  }
  void send(const sim::Group& group, std::span<const std::byte>) override { no_neighbour(group); }
  void receive(const sim::Group& group, std::span<std::byte>) override { no_neighbour(group); }

 private:
  static void alone(const sim::Group& group) {
    if (group.size != 1)
      throw std::logic_error("group " + std::string(name(group.axis)) + " has " + std::to_string(group.size) +
                             " ranks, this process is one alone");
  }
  static void copy(const sim::Group& group, std::span<std::byte> to, std::span<const std::byte> from) {
    alone(group);
    if (to.size() != from.size()) throw std::logic_error("shards of one rank must be whole buffers");
    if (to.data() != from.data()) std::memcpy(to.data(), from.data(), from.size());
  }
  [[noreturn]] static void no_neighbour(const sim::Group& group) {
    throw std::logic_error("one rank alone has no neighbour in group " + std::string(name(group.axis)));
  }
};

}  // namespace

std::unique_ptr<Communicator> make_single_rank_communicator() {
  return std::make_unique<SingleRank>();
}

}  // namespace runtime
