// Messages between ranks: what a Communicator's collectives are made of. Threads of one process
// (thread_ranks.h) and processes of one machine (socket_ranks.h) have one each.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/error.h"

namespace runtime {

// Another rank has ended, with the reason that it gave, if any: "rank 3 ended: ...".
struct RankLost : DeviceError {
  RankLost(std::int32_t lost, const std::string& reason)
      : DeviceError("rank " + std::to_string(lost) + " ended: " + reason), rank(lost) {}
  std::int32_t rank;
};
inline constexpr const char* kEndedBefore =
    "it had done all of its own, while another rank still waits for it";

// Tells messages between the same two ranks apart. Those of one tag arrive in the order in which they went.
using MessageTag = std::uint64_t;

using ConstBytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::int32_t rank() const = 0;
  virtual std::int32_t size() const = 0;

  // Sends the parts, one after the other, as one message. Returns when the parts may be changed, without
  // waiting for the receiver, so two ranks may both send to each other before they receive. Throws
  // RankLost.
  virtual void send(std::int32_t to, MessageTag tag, std::span<const ConstBytes> parts) = 0;
  // Waits for the next message of that rank and tag, which has as many bytes as the parts together:
  // std::logic_error where it has not. Throws RankLost.
  virtual void receive(std::int32_t from, MessageTag tag, std::span<const MutableBytes> parts) = 0;
  // As receive(), but gives the message where it lies, without a copy if possible. The view is valid until
  // the next view of that rank. Elements of any type are adjacent and aligned in it.
  virtual ConstBytes view(std::int32_t from, MessageTag tag, std::size_t bytes) {
    std::vector<std::byte>& copy = viewed_[from];
    copy.resize(bytes);
    const MutableBytes whole(copy);
    receive(from, tag, std::span(&whole, 1));
    return copy;
  }
  // Whether receive() would begin at once; true where that is not known.
  virtual bool has_come(std::int32_t /*from*/, MessageTag /*tag*/) { return true; }
  // Takes what has arrived, without waiting: throws RankLost where another rank is no more.
  virtual void check() = 0;
  // Whether the rank has said that it has done all of its work. A call that waits for more from it, or for
  // room that it would free, throws RankLost.
  virtual bool has_ended(std::int32_t rank) const = 0;
  // Makes every other rank's calls throw RankLost with this rank and reason.
  virtual void give_up(const std::string& reason) noexcept = 0;

 private:
  std::map<std::int32_t, std::vector<std::byte>> viewed_;  // by rank
};

}  // namespace runtime
