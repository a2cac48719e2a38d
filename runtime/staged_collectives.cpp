#include "runtime/staged_collectives.h"

#include <cstring>

#include "runtime/segments.h"

namespace runtime {
namespace {

// Beside the slots of those who call.
constexpr std::size_t kTogether = ~std::size_t{0};

template <class Bytes, class Hosts>
std::vector<Bytes> views(Hosts& hosts) {
  return {hosts.begin(), hosts.end()};
}

}  // namespace

StagedCollectives::StagedCollectives(Device& device, Communicator& communicator)
    : device_(device), communicator_(communicator), memory_(device) {}

StagedCollectives::Host StagedCollectives::fetch(std::span<const ConstBytes> segments) {
  Host host(total_bytes(segments));
  if (segments.size() <= 1) {
    if (!host.empty()) device_.copy_from_device(host, segments.front().data());
    return host;
  }
  const MutableBytes together = memory_.slot(kTogether, host.size());
  copy(std::span(&together, 1), segments);
  if (!host.empty()) device_.copy_from_device(host, together.data());
  return host;
}

void StagedCollectives::store(std::span<const MutableBytes> segments, ConstBytes host) {
  if (host.empty()) return;
  if (segments.size() == 1) return device_.copy_to_device(segments.front().data(), host);
  const MutableBytes together = memory_.slot(kTogether, host.size());
  device_.copy_to_device(together.data(), host);
  const ConstBytes from = together;
  copy(segments, std::span(&from, 1));
}

void StagedCollectives::all_reduce(const Members& members, std::span<const MutableBytes> buffers,
                                   sim::DType dtype) {
  if (members.size() == 1) return;
  Host host = fetch(read_only(buffers));
  const MutableBytes whole(host);
  communicator_.all_reduce(members, std::span(&whole, 1), dtype);
  store(buffers, host);
}

void StagedCollectives::begin_all_reduce(const Members& members, MessageTag tag,
                                         std::span<const MutableBytes> buffers) {
  Host host = fetch(read_only(buffers));
  const MutableBytes whole(host);
  communicator_.begin_all_reduce(members, tag, std::span(&whole, 1));
}

void StagedCollectives::end_all_reduce(const Members& members, MessageTag tag,
                                       std::span<const MutableBytes> buffers, sim::DType dtype) {
  Host host = fetch(read_only(buffers));
  const MutableBytes whole(host);
  communicator_.end_all_reduce(members, tag, std::span(&whole, 1), dtype);
  store(buffers, host);
}

void StagedCollectives::reduce_scatter(const Members& members, std::span<const MutableBytes> shards,
                                       std::span<const ConstBytes> buffers, sim::DType dtype, bool adds) {
  std::vector<Host> out, inp;
  // What is behind a part stays.
  for (const MutableBytes& shard : shards) out.push_back(fetch(read_only(std::span(&shard, 1))));
  for (const ConstBytes& buffer : buffers) inp.push_back(fetch(std::span(&buffer, 1)));
  communicator_.reduce_scatter(members, views<MutableBytes>(out), views<ConstBytes>(inp), dtype, adds);
  for (std::size_t i = 0; i < shards.size(); ++i) store(shards.subspan(i, 1), out[i]);
}

void StagedCollectives::all_gather(const Members& members, std::span<const MutableBytes> buffers,
                                   std::span<const ConstBytes> shards, sim::DType dtype) {
  std::vector<Host> out, inp;
  for (const MutableBytes& buffer : buffers) out.emplace_back(buffer.size());
  for (const ConstBytes& shard : shards) inp.push_back(fetch(std::span(&shard, 1)));
  communicator_.all_gather(members, views<MutableBytes>(out), views<ConstBytes>(inp), dtype);
  for (std::size_t i = 0; i < buffers.size(); ++i) store(buffers.subspan(i, 1), out[i]);
}

void StagedCollectives::all_to_all(const Members& members, MutableBytes out, ConstBytes inp) {
  const Host sent = fetch(std::span(&inp, 1));
  Host arrived(out.size());
  communicator_.all_to_all(members, arrived, sent);
  store(std::span(&out, 1), arrived);
}

void StagedCollectives::exchange_parts(const Members& members, const MutableParts& out,
                                       const ConstParts& inp) {
  std::vector<Host> arrived, sent;
  MutableParts host_out;
  ConstParts host_inp;
  for (const auto& part : out) arrived.emplace_back(total_bytes(part));
  for (const auto& part : inp) sent.push_back(fetch(part));
  for (Host& part : arrived) host_out.push_back({MutableBytes(part)});
  for (const Host& part : sent) host_inp.push_back({ConstBytes(part)});
  communicator_.exchange_parts(members, host_out, host_inp);
  for (std::size_t i = 0; i < out.size(); ++i) store(out[i], arrived[i]);
}

void StagedCollectives::sum_parts(const Members& members, std::span<const MutableBytes> out,
                                  const ConstParts& inp, sim::DType dtype) {
  std::vector<Host> sent;
  ConstParts host_inp;
  for (const auto& part : inp) sent.push_back(fetch(part));
  for (const Host& part : sent) host_inp.push_back({ConstBytes(part)});
  Host sum(total_bytes(out));
  const MutableBytes whole(sum);
  communicator_.sum_parts(members, std::span(&whole, 1), host_inp, dtype);
  store(out, sum);
}

void StagedCollectives::exchange(const Members& members, std::span<const MutableBytes> out,
                                 std::span<const ConstBytes> inp) {
  const Host sent = fetch(inp);
  Host arrived(total_bytes(out));
  const MutableBytes whole_out(arrived);
  const ConstBytes whole_inp(sent);
  communicator_.exchange(members, std::span(&whole_out, 1), std::span(&whole_inp, 1));
  store(out, arrived);
}

void StagedCollectives::send(std::int32_t to, MessageTag tag, ConstBytes buffer) {
  communicator_.send(to, tag, fetch(std::span(&buffer, 1)));
}

void StagedCollectives::receive(std::int32_t from, MessageTag tag, MutableBytes buffer) {
  Host host(buffer.size());
  communicator_.receive(from, tag, host);
  store(std::span(&buffer, 1), host);
}

MutableBytes StagedCollectives::memory(std::size_t slot, std::size_t bytes) {
  return memory_.slot(slot, bytes);
}

void StagedCollectives::copy(std::span<const MutableBytes> to, std::span<const ConstBytes> from) {
  copy_segments(device_, to, from);
}

}  // namespace runtime
