#include "runtime/device_collectives.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/nccl_collectives.h"
#include "runtime/staged_collectives.h"

namespace runtime {
namespace {

// A GPU by its machine and its place there, zero at the end.
using Place = std::array<char, 256>;

Place place_of(const Device& device) {
  Place place{};
  constexpr std::size_t kHost = 200;
  gethostname(place.data(), kHost);
  place[kHost] = '\0';
  const std::string bus = '/' + device.pci_bus_id();
  const std::size_t host = std::strlen(place.data());
  bus.copy(place.data() + host, place.size() - 1 - host);
  return place;
}

bool each_has_its_own(Device& device, Communicator& communicator) {
  const Place own = place_of(device);
  std::vector<Place> all(static_cast<std::size_t>(communicator.size()));
  const MutableBytes gathered = std::as_writable_bytes(std::span(all));
  const ConstBytes shard = std::as_bytes(std::span(&own, 1));
  communicator.all_gather(communicator.everyone(), std::span(&gathered, 1), std::span(&shard, 1),
                          sim::DType::fp64);
  std::sort(all.begin(), all.end());
  return std::adjacent_find(all.begin(), all.end()) == all.end();
}

}  // namespace

std::unique_ptr<Collectives> make_device_collectives(
    Device& device, Communicator& communicator, std::span<const Members> groups,
    std::span<const std::pair<std::int32_t, std::int32_t>> pairs) {
  if (nccl_is_switched_off() || !each_has_its_own(device, communicator))
    return std::make_unique<StagedCollectives>(device, communicator);
  return std::make_unique<NcclCollectives>(device, communicator, groups, pairs);
}

}  // namespace runtime
