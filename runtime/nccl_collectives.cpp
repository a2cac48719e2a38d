#include "runtime/nccl_collectives.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <thread>

#include "runtime/error.h"
#include "runtime/segments.h"

namespace runtime {
namespace {

constexpr std::size_t kCollectives = 0;  // the stream aside; those of lines follow
// Slots of the exchanges' own memory, apart from the callers'; then the slots of the lines' copies.
constexpr std::size_t kOwnSlots = std::size_t{1} << std::numeric_limits<std::size_t>::digits / 2;
constexpr std::size_t kLineSlots = kOwnSlots << 1;

NcclType type_of(sim::DType dtype) {
  switch (dtype) {
    case sim::DType::fp32:
      return NcclType::float32;
    case sim::DType::fp64:
      return NcclType::float64;
    case sim::DType::bf16:
      return NcclType::bfloat16;
    case sim::DType::fp16:
      return NcclType::float16;
    default:
      throw std::logic_error("ranks add up numbers of 16 bits and more, not " +
                             std::string(sim::name(dtype)));
  }
}

bool is_even(std::size_t bytes, std::size_t element, std::size_t n) {
  return bytes / element % n == 0;
}

std::string names_of(const Members& members) {
  std::string text = "ranks ";
  for (std::size_t i = 0; i < members.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(members.ranks[i]);
  return text;
}

}  // namespace

NcclCollectives::NcclCollectives(Device& device, Communicator& communicator, std::span<const Members> groups,
                                 std::span<const Pair> pairs)
    : nccl_(nccl_library()), device_(device), communicator_(communicator), memory_(device) {
  // A communicator is made when all its members come to it. All ranks make theirs in the same order, so that
  // no two wait for each other.
  std::map<std::vector<std::int32_t>, Members> sorted;
  for (const Members& members : groups)
    if (members.size() > 1) sorted.emplace(members.ranks, members);
  for (const auto& [ranks, members] : sorted) groups_.emplace(ranks, join(members));
  std::vector<Pair> sorted_pairs(pairs.begin(), pairs.end());
  std::sort(sorted_pairs.begin(), sorted_pairs.end());
  for (const Pair& pair : sorted_pairs) {
    if (lines_.count(pair) > 0) continue;
    const Members members{{pair.first, pair.second}, pair.first == communicator.rank() ? 0U : 1U};
    const std::size_t aside = 1 + lines_.size();
    Line& line = lines_[pair];
    line.aside = aside;
    line.nccl = join(members);
  }
}

NcclCollectives::~NcclCollectives() {
  // After an error, what is still queued waits for ranks that will not come: aborting ends it. After a run
  // that ended well, others may still read what this rank has sent.
  const bool failed = std::uncaught_exceptions() > 0;
  const auto end = [&](NcclCommunicator nccl) {
    if (nccl != nullptr) failed ? nccl_.abort(nccl) : nccl_.destroy(nccl);
  };
  for (const auto& [ranks, nccl] : groups_) end(nccl);
  for (const auto& [pair, line] : lines_) end(line.nccl);
}

NcclCommunicator NcclCollectives::join(const Members& members) {
  NcclUniqueId id{};
  if (members.self == 0) {
    require(nccl_.get_unique_id(&id), "an id for " + names_of(members));
    for (std::size_t i = 1; i < members.size(); ++i)
      communicator_.send(members.ranks[i], Communicator::kAnnouncement, std::as_bytes(std::span(&id, 1)));
  } else {
    communicator_.receive(members.ranks.front(), Communicator::kAnnouncement,
                          std::as_writable_bytes(std::span(&id, 1)));
  }
  NcclCommunicator made = nullptr;
  require(nccl_.init_rank(&made, static_cast<int>(members.size()), id, static_cast<int>(members.self)),
          names_of(members) + " meeting");
  return made;
}

void NcclCollectives::require(int result, const std::string& what) const {
  if (result == kNcclSuccess || result == kNcclInProgress) return;
  communicator_.check();  // who is no more says more than NCCL does
  throw DeviceError("NCCL " + nccl_.version_text() + " failed at " + what + ": " +
                    nccl_.error_string(result));
}

NcclCommunicator NcclCollectives::nccl_of(const Members& members) const {
  const auto found = groups_.find(members.ranks);
  if (found == groups_.end()) throw std::logic_error(names_of(members) + " are no group of NCCL's");
  return found->second;
}

NcclCollectives::Line& NcclCollectives::line(Pair pair) {
  const auto found = lines_.find(pair);
  if (found == lines_.end())
    throw std::logic_error("no messages were to go from rank " + std::to_string(pair.first) + " to " +
                           std::to_string(pair.second));
  return found->second;
}

void NcclCollectives::carry_out(const char* what, const Members& members, std::vector<Calls> calls) {
  if (calls.empty()) return;
  const NcclCommunicator nccl = nccl_of(members);
  const std::string at = std::string(what) + " of " + names_of(members);
  device_.queue_aside(kCollectives, [this, nccl, at, all = std::move(calls)](NcclStream stream) {
    require(nccl_.group_start(), at);
    int result = kNcclSuccess;
    for (const Calls& call : all)
      if (result == kNcclSuccess) result = call(nccl_, nccl, stream);
    const int ended = nccl_.group_end();
    require(result, at);
    require(ended, at);
  });
  device_.await_aside(kCollectives);
}

MutableBytes NcclCollectives::own_memory(std::size_t bytes) {
  return memory_.slot(kOwnSlots + next_own_slot_++, bytes);
}

void NcclCollectives::all_reduce(const Members& members, std::span<const MutableBytes> buffers,
                                 sim::DType dtype) {
  if (members.size() == 1) return;
  std::vector<Calls> calls;
  for (const MutableBytes buffer : buffers)
    if (!buffer.empty())
      calls.push_back([buffer, type = type_of(dtype), count = buffer.size() / element_size(dtype)](
                          const NcclLibrary& nccl, NcclCommunicator group, NcclStream stream) {
        return nccl.all_reduce(buffer.data(), buffer.data(), count, type, NcclSum::sum, group, stream);
      });
  carry_out("a sum", members, std::move(calls));
}

// NCCL's ranks take part in the order of their calls, so the sum is formed where all of them end it.
void NcclCollectives::begin_all_reduce(const Members&, MessageTag, std::span<const MutableBytes>) {}

void NcclCollectives::end_all_reduce(const Members& members, MessageTag,
                                     std::span<const MutableBytes> buffers, sim::DType dtype) {
  all_reduce(members, buffers, dtype);
}

void NcclCollectives::reduce_scatter(const Members& members, std::span<const MutableBytes> shards,
                                     std::span<const ConstBytes> buffers, sim::DType dtype, bool adds) {
  next_own_slot_ = 0;
  const std::size_t n = members.size(), element = element_size(dtype);
  const NcclType type = type_of(dtype);
  std::vector<Calls> calls;
  std::vector<MutableBytes> sums;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const ConstBytes buffer = buffers[b];
    const Part own = part_of(buffer.size(), element, n, members.self);
    if (shards[b].size() < own.bytes) throw std::logic_error("a shard is smaller than its part");
    const MutableBytes sum = adds && n > 1 ? own_memory(own.bytes) : shards[b].first(own.bytes);
    sums.push_back(sum);
    if (n == 1) {
      sums.back() = {const_cast<std::byte*>(buffer.data()), own.bytes};
      if (!adds) copy(std::span(&sum, 1), std::span(&buffer, 1));
    } else if (is_even(buffer.size(), element, n)) {
      calls.push_back([=, count = own.bytes / element](const NcclLibrary& nccl, NcclCommunicator group,
                                                       NcclStream stream) {
        return nccl.reduce_scatter(buffer.data(), sum.data(), count, type, NcclSum::sum, group, stream);
      });
    } else {
      for (std::size_t i = 0; i < n; ++i) {
        const Part part = part_of(buffer.size(), element, n, i);
        if (part.bytes == 0) continue;
        calls.push_back([=, count = part.bytes / element](const NcclLibrary& nccl, NcclCommunicator group,
                                                          NcclStream stream) {
          return nccl.reduce(buffer.data() + part.begin, sum.data(), count, type, NcclSum::sum,
                             static_cast<int>(i), group, stream);
        });
      }
    }
  }
  carry_out("a reduce-scatter", members, std::move(calls));
  if (!adds) return;
  for (std::size_t b = 0; b < buffers.size(); ++b)
    if (!sums[b].empty())
      device_.add(shards[b].data(), sums[b].data(), static_cast<std::int64_t>(sums[b].size() / element),
                  dtype);
}

void NcclCollectives::all_gather(const Members& members, std::span<const MutableBytes> buffers,
                                 std::span<const ConstBytes> shards, sim::DType dtype) {
  const std::size_t n = members.size(), element = element_size(dtype);
  std::vector<Calls> calls;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const MutableBytes buffer = buffers[b];
    const Part own = part_of(buffer.size(), element, n, members.self);
    if (shards[b].size() < own.bytes) throw std::logic_error("a shard is smaller than its part");
    const ConstBytes shard = shards[b].first(own.bytes);
    if (n == 1) {
      copy(std::span(&buffer, 1), std::span(&shard, 1));
    } else if (is_even(buffer.size(), element, n)) {
      calls.push_back([=](const NcclLibrary& nccl, NcclCommunicator group, NcclStream stream) {
        return nccl.all_gather(shard.data(), buffer.data(), shard.size(), NcclType::uint8, group, stream);
      });
    } else {
      for (std::size_t i = 0; i < n; ++i) {
        const Part part = part_of(buffer.size(), element, n, i);
        if (part.bytes == 0) continue;
        std::byte* const to = buffer.data() + part.begin;
        const std::byte* const from = i == members.self ? shard.data() : to;  // read by the root alone
        calls.push_back([=](const NcclLibrary& nccl, NcclCommunicator group, NcclStream stream) {
          return nccl.broadcast(from, to, part.bytes, NcclType::uint8, static_cast<int>(i), group, stream);
        });
      }
    }
  }
  carry_out("an all-gather", members, std::move(calls));
}

void NcclCollectives::all_to_all(const Members& members, MutableBytes out, ConstBytes inp) {
  const std::size_t n = members.size(), part = inp.size() / n;
  if (out.size() != inp.size() || part * n != inp.size())
    throw std::logic_error("an all-to-all of " + std::to_string(n) + " ranks has equal parts");
  MutableParts to;
  ConstParts from;
  for (std::size_t i = 0; i < n; ++i) {
    to.push_back({out.subspan(i * part, part)});
    from.push_back({inp.subspan(i * part, part)});
  }
  exchange_parts(members, to, from);
}

void NcclCollectives::exchange_parts(const Members& members, const MutableParts& out, const ConstParts& inp) {
  next_own_slot_ = 0;
  const std::size_t n = members.size();
  std::vector<Calls> calls;
  std::vector<std::pair<std::size_t, MutableBytes>> apart;  // what is then taken apart
  for (std::size_t i = 0; i < n; ++i) {
    if (i == members.self) continue;
    const int peer = static_cast<int>(i);
    if (const std::size_t bytes = total_bytes(inp[i]); bytes > 0) {
      ConstBytes sent = inp[i].front();
      if (inp[i].size() > 1) {
        const MutableBytes together = own_memory(bytes);
        copy(std::span(&together, 1), inp[i]);
        sent = together;
      }
      calls.push_back([=](const NcclLibrary& nccl, NcclCommunicator group, NcclStream stream) {
        return nccl.send(sent.data(), sent.size(), NcclType::uint8, peer, group, stream);
      });
    }
    if (const std::size_t bytes = total_bytes(out[i]); bytes > 0) {
      MutableBytes arriving = out[i].front();
      if (out[i].size() > 1) {
        arriving = own_memory(bytes);
        apart.emplace_back(i, arriving);
      }
      calls.push_back([=](const NcclLibrary& nccl, NcclCommunicator group, NcclStream stream) {
        return nccl.receive(arriving.data(), arriving.size(), NcclType::uint8, peer, group, stream);
      });
    }
  }
  copy(out[members.self], inp[members.self]);
  carry_out("an exchange", members, std::move(calls));
  for (const auto& [i, together] : apart) {
    const ConstBytes from = together;
    copy(out[i], std::span(&from, 1));
  }
}

void NcclCollectives::sum_parts(const Members& members, std::span<const MutableBytes> out,
                                const ConstParts& inp, sim::DType dtype) {
  next_own_slot_ = 0;
  const std::size_t n = members.size(), element = element_size(dtype), own_bytes = total_bytes(out);
  if (n == 1) return copy(out, inp.front());
  MutableBytes sum = out.empty() ? MutableBytes() : out.front();
  if (out.size() > 1) sum = own_memory(own_bytes);
  std::vector<Calls> calls;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t bytes = total_bytes(inp[i]);
    if (bytes == 0) continue;
    ConstBytes part = inp[i].front();
    if (inp[i].size() > 1) {
      const MutableBytes together = own_memory(bytes);
      copy(std::span(&together, 1), inp[i]);
      part = together;
    }
    calls.push_back(
        [=, type = type_of(dtype)](const NcclLibrary& nccl, NcclCommunicator group, NcclStream stream) {
          return nccl.reduce(part.data(), sum.data(), part.size() / element, type, NcclSum::sum,
                             static_cast<int>(i), group, stream);
        });
  }
  carry_out("sums of parts", members, std::move(calls));
  if (out.size() > 1) {
    const ConstBytes from = sum;
    copy(out, std::span(&from, 1));
  }
}

void NcclCollectives::exchange(const Members& members, std::span<const MutableBytes> out,
                               std::span<const ConstBytes> inp) {
  const std::size_t n = members.size();
  if (n == 1) return copy(out, inp);
  const int next = static_cast<int>((members.self + 1) % n),
            before = static_cast<int>((members.self + n - 1) % n);
  std::vector<Calls> calls;
  for (const ConstBytes sent : inp)
    if (!sent.empty())
      calls.push_back([=](const NcclLibrary& nccl, NcclCommunicator group, NcclStream stream) {
        return nccl.send(sent.data(), sent.size(), NcclType::uint8, next, group, stream);
      });
  for (const MutableBytes arriving : out)
    if (!arriving.empty())
      calls.push_back([=](const NcclLibrary& nccl, NcclCommunicator group, NcclStream stream) {
        return nccl.receive(arriving.data(), arriving.size(), NcclType::uint8, before, group, stream);
      });
  carry_out("a ring's exchange", members, std::move(calls));
}

// What hosts send each other before each message: the receiver calls NCCL in the sender's order.
namespace {
struct Announcement {
  MessageTag tag = 0;
  std::uint64_t bytes = 0;
};
}  // namespace

MutableBytes NcclCollectives::copy_for(Line& line, std::size_t bytes) {
  const auto fits = [&](const MutableBytes& block) { return block.size() >= bytes; };
  auto found = std::find_if(line.free.begin(), line.free.end(), fits);
  if (found == line.free.end()) {
    // Copies that have been sent are free; those that wait to be received are not among them.
    if (device_.aside_is_done(line.aside)) {
      line.free.insert(line.free.end(), line.in_use.begin(), line.in_use.end());
      line.in_use.clear();
    }
    found = std::find_if(line.free.begin(), line.free.end(), fits);
  }
  if (found == line.free.end()) {
    const MutableBytes block = memory_.slot(kLineSlots + next_line_slot_++, bytes);
    return block;
  }
  const MutableBytes block = *found;
  line.free.erase(found);
  return block;
}

void NcclCollectives::send(std::int32_t to, MessageTag tag, ConstBytes buffer) {
  const Pair pair{communicator_.rank(), to};
  Line& line = this->line(pair);
  const Announcement announcement{tag, buffer.size()};
  communicator_.send(to, Communicator::kAnnouncement, std::as_bytes(std::span(&announcement, 1)));
  const MutableBytes block = copy_for(line, buffer.size()), sent = block.first(buffer.size());
  line.in_use.push_back(block);
  copy(std::span(&sent, 1), std::span(&buffer, 1));
  device_.queue_aside(line.aside, [this, sent, nccl = line.nccl, to](NcclStream stream) {
    require(nccl_.send(sent.data(), sent.size(), NcclType::uint8, 1, nccl, stream),
            "a message to rank " + std::to_string(to));
  });
}

void NcclCollectives::receive(std::int32_t from, MessageTag tag, MutableBytes buffer) {
  Line& line = this->line({from, communicator_.rank()});
  const auto has_come = [&](const auto& message) { return message.first == tag; };
  const auto waiting = std::find_if(line.arrived.begin(), line.arrived.end(), has_come);
  const auto require_size = [&](std::size_t bytes) {
    if (bytes != buffer.size())
      throw std::logic_error("rank " + std::to_string(communicator_.rank()) + " waits for " +
                             std::to_string(buffer.size()) + " bytes, rank " + std::to_string(from) +
                             " sent " + std::to_string(bytes));
  };
  if (waiting != line.arrived.end()) {
    const MutableBytes block = waiting->second;
    line.arrived.erase(waiting);
    const ConstBytes come = block.first(buffer.size());
    device_.await_aside(line.aside);
    copy(std::span(&buffer, 1), std::span(&come, 1));
    line.free.push_back(block);  // what is received into it later waits for this copy
    return;
  }
  for (bool found = false; !found;) {
    Announcement announced;
    communicator_.receive(from, Communicator::kAnnouncement,
                          std::as_writable_bytes(std::span(&announced, 1)));
    found = announced.tag == tag;
    if (found) require_size(announced.bytes);
    const MutableBytes block = found ? buffer : copy_for(line, announced.bytes);
    const MutableBytes arriving = block.first(announced.bytes);
    if (!found) line.arrived.emplace_back(announced.tag, block);
    device_.queue_aside(line.aside, [this, arriving, nccl = line.nccl, from](NcclStream stream) {
      require(nccl_.receive(arriving.data(), arriving.size(), NcclType::uint8, 0, nccl, stream),
              "a message from rank " + std::to_string(from));
    });
  }
  device_.await_aside(line.aside);
}

MutableBytes NcclCollectives::memory(std::size_t slot, std::size_t bytes) {
  return memory_.slot(slot, bytes);
}

void NcclCollectives::copy(std::span<const MutableBytes> to, std::span<const ConstBytes> from) {
  copy_segments(device_, to, from);
}

// NCCL's kernels wait for ever for a rank that is gone: the other hosts tell this host of it.
void NcclCollectives::finish() {
  for (const auto& [pair, line] : lines_) device_.await_aside(line.aside);
  constexpr std::chrono::microseconds kFirst{20}, kLongest{2000};
  for (auto wait = kFirst; !device_.is_done(); wait = std::min(2 * wait, kLongest)) {
    std::this_thread::sleep_for(wait);
    communicator_.check();
    const auto check = [&](NcclCommunicator nccl, const std::string& who) {
      int result = kNcclSuccess;
      require(nccl_.async_error(nccl, &result), who);
      require(result, who);
    };
    for (const auto& [ranks, nccl] : groups_) check(nccl, names_of({ranks, 0}));
    for (const auto& [pair, line] : lines_) check(line.nccl, names_of({{pair.first, pair.second}, 0}));
  }
}

}  // namespace runtime
