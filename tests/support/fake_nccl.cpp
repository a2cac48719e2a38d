// NCCL as runtime/nccl_library.h loads it, over files between processes, for ranks whose GPUs are emulated:
// their memory is the host's, and what is queued is done at once. An exchange that ranks do not call alike
// fails, as does one whose other rank is no more. FAKE_NCCL_VERSION is another version than 2.27.3.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

namespace fs = std::filesystem;

constexpr int kSuccess = 0, kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6;
constexpr int kUint8 = 1, kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9;

struct Id {
  char bytes[128];
};

std::size_t size_of(int type) {
  return type == kUint8 ? 1 : type == kBfloat16 ? 2 : type == kFloat32 ? 4 : type == kFloat64 ? 8 : 0;
}

// What a message is of: both ends say the same.
struct Header {
  int call = 0, type = 0;
  std::uint64_t count = 0;
  bool operator==(const Header&) const = default;
};

float widen(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}
std::uint16_t narrow(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// sum (in fp32 or fp64) of parts in the order of ranks.
template <class Stored, class Sum, class Widen, class Narrow>
void sum_as(void* to, const std::vector<std::vector<char>>& parts, std::size_t count, Widen wide,
            Narrow narrowed) {
  for (std::size_t i = 0; i < count; ++i) {
    Sum sum{};
    for (const auto& part : parts) {
      Stored value{};
      std::memcpy(&value, part.data() + i * sizeof value, sizeof value);
      sum += wide(value);
    }
    const Stored value = narrowed(sum);
    std::memcpy(static_cast<char*>(to) + i * sizeof value, &value, sizeof value);
  }
}
void sum_up(void* to, const std::vector<std::vector<char>>& parts, std::size_t count, int type) {
  const auto same = [](auto x) { return x; };
  if (type == kFloat32) sum_as<float, float>(to, parts, count, same, same);
  if (type == kFloat64) sum_as<double, double>(to, parts, count, same, same);
  if (type == kBfloat16) sum_as<std::uint16_t, float>(to, parts, count, widen, narrow);
}

}  // namespace

struct ncclComm {
  fs::path folder;
  int rank = 0, size = 1;
  std::map<int, int> sent, received;  // messages so far, by the other rank
  bool aborted = false;

  fs::path file(const char* what, int of) const { return folder / (what + std::to_string(of)); }

  bool is_alive(int other) const {
    std::ifstream in(file("rank", other));
    int process = 0;
    return !(in >> process) || kill(process, 0) == 0;  // not yet come counts as alive
  }

  // Others see the whole file or none.
  bool put(const fs::path& name, const void* header, std::size_t header_bytes, const void* data,
           std::size_t bytes) const {
    const fs::path whole = name, part = name.string() + ".part";
    {
      std::ofstream out(part, std::ios::binary);
      out.write(static_cast<const char*>(header), static_cast<std::streamsize>(header_bytes));
      if (bytes > 0) out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
      if (!out) return false;
    }
    std::error_code error;
    fs::rename(part, whole, error);
    return !error;
  }

  int wait_for(const fs::path& name, int other) const {
    using Clock = std::chrono::steady_clock;
    auto asked = Clock::now();
    const auto end = asked + std::chrono::minutes(2);
    while (access(name.c_str(), R_OK) != 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(30));
      const auto now = Clock::now();
      if (now - asked < std::chrono::milliseconds(20)) continue;
      asked = now;
      if (!is_alive(other) || !fs::exists(folder)) return kRemoteError;
      if (now > end) return kSystemError;
    }
    return kSuccess;
  }

  fs::path message(int from, int to, int number) const {
    return folder / (std::to_string(from) + "to" + std::to_string(to) + "." + std::to_string(number));
  }
  int post(int to, const Header& header, const void* data) {
    const bool put_there =
        put(message(rank, to, sent[to]), &header, sizeof header, data, header.count * size_of(header.type));
    ++sent[to];
    return put_there ? kSuccess : kRemoteError;
  }
  int take(int from, const Header& header, std::vector<char>& data) {
    const fs::path name = message(from, rank, received[from]++);
    if (const int result = wait_for(name, from); result != kSuccess) return result;
    std::ifstream in(name, std::ios::binary);
    Header come;
    in.read(reinterpret_cast<char*>(&come), sizeof come);
    if (!(come == header)) return kInvalidUsage;
    data.resize(header.count * size_of(header.type));
    in.read(data.data(), static_cast<std::streamsize>(data.size()));
    fs::remove(name);
    return in ? kSuccess : kSystemError;
  }
};

namespace {

// A call is what it sends, and what it then waits for: those of a group all send first.
struct Call {
  std::function<int()> post, complete;
};
thread_local int depth = 0;
thread_local std::vector<Call> group;

int end_calls(std::vector<Call> calls) {
  for (const Call& call : calls)
    if (const int result = call.post(); result != kSuccess) return result;
  for (const Call& call : calls)
    if (const int result = call.complete(); result != kSuccess) return result;
  return kSuccess;
}
int queue(Call call) {
  if (depth == 0) return end_calls({std::move(call)});
  group.push_back(std::move(call));
  return kSuccess;
}

enum Kind { kAllReduce = 1, kReduce, kBroadcast, kReduceScatter, kAllGather, kMessage };

// What goes to rank j is data(j); from all comes what complete(parts) takes.
using Parts = std::vector<std::vector<char>>;
Call among_all(ncclComm* comm, Header header, const std::function<const char*(int)>& data,
               const std::function<void(const Parts&)>& complete, int root = -1) {
  const std::size_t bytes = header.count * size_of(header.type);
  return {[=] {
            for (int to = 0; to < comm->size; ++to)
              if (to != comm->rank && (root < 0 || to == root))
                if (const int result = comm->post(to, header, data(to)); result != kSuccess) return result;
            return kSuccess;
          },
          [=] {
            if (root >= 0 && root != comm->rank) return kSuccess;
            Parts parts(static_cast<std::size_t>(comm->size));
            for (int from = 0; from < comm->size; ++from) {
              std::vector<char>& part = parts[static_cast<std::size_t>(from)];
              if (from == comm->rank)
                part.assign(data(from), data(from) + bytes);
              else if (const int result = comm->take(from, header, part); result != kSuccess)
                return result;
            }
            complete(parts);
            return kSuccess;
          }};
}

bool adds_up(int type, int operation) {
  return operation == 0 && (type == kFloat32 || type == kFloat64 || type == kBfloat16);
}

}  // namespace

EXPORT int ncclGetVersion(int* version) {
  const char* const other = std::getenv("FAKE_NCCL_VERSION");
  *version = other != nullptr ? std::atoi(other) : 22703;
  return kSuccess;
}
EXPORT const char* ncclGetErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "no error";
    case kInvalidArgument:
      return "invalid argument";
    case kInvalidUsage:
      return "invalid usage";
    case kRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "unhandled system error";
  }
}
EXPORT int ncclGetUniqueId(Id* id) {
  std::string folder = fs::temp_directory_path() / "fake_nccl_XXXXXX";
  if (mkdtemp(folder.data()) == nullptr || folder.size() >= sizeof id->bytes) return kSystemError;
  *id = {};
  std::memcpy(id->bytes, folder.c_str(), folder.size());
  return kSuccess;
}
EXPORT int ncclCommInitRank(ncclComm** made, int size, Id id, int rank) {
  if (rank < 0 || rank >= size) return kInvalidArgument;
  auto* const comm = new ncclComm{id.bytes, rank, size, {}, {}, false};
  const std::string process = std::to_string(getpid());
  if (!comm->put(comm->file("rank", rank), process.data(), process.size(), nullptr, 0)) return kSystemError;
  for (int other = 0; other < size; ++other)
    if (const int result = comm->wait_for(comm->file("rank", other), other); result != kSuccess)
      return result;
  *made = comm;
  return kSuccess;
}
// The last one to leave removes the folder; who aborts leaves nobody anything.
EXPORT int ncclCommDestroy(ncclComm* comm) {
  std::error_code ignored;
  fs::rename(comm->file("rank", comm->rank), comm->file("left", comm->rank), ignored);
  bool all = true;
  for (int other = 0; other < comm->size; ++other)
    all = all && fs::exists(comm->file("left", other), ignored);
  if (all) fs::remove_all(comm->folder, ignored);
  delete comm;
  return kSuccess;
}
EXPORT int ncclCommAbort(ncclComm* comm) {
  std::error_code ignored;
  fs::remove_all(comm->folder, ignored);
  delete comm;
  return kSuccess;
}
EXPORT int ncclCommGetAsyncError(ncclComm*, int* result) {
  *result = kSuccess;
  return kSuccess;
}
EXPORT int ncclGroupStart() {
  ++depth;
  return kSuccess;
}
EXPORT int ncclGroupEnd() {
  if (depth == 0) return kInvalidUsage;
  if (--depth > 0) return kSuccess;
  return end_calls(std::exchange(group, {}));
}

EXPORT int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int operation,
                         ncclComm* comm, void*) {
  if (!adds_up(type, operation)) return kInvalidArgument;
  return queue(among_all(
      comm, {kAllReduce, type, count}, [=](int) { return static_cast<const char*>(from); },
      [=](const Parts& parts) { sum_up(to, parts, count, type); }));
}
EXPORT int ncclReduce(const void* from, void* to, std::size_t count, int type, int operation, int root,
                      ncclComm* comm, void*) {
  if (!adds_up(type, operation)) return kInvalidArgument;
  return queue(among_all(
      comm, {kReduce, type, count}, [=](int) { return static_cast<const char*>(from); },
      [=](const Parts& parts) { sum_up(to, parts, count, type); }, root));
}
EXPORT int ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int operation,
                             ncclComm* comm, void*) {
  if (!adds_up(type, operation)) return kInvalidArgument;
  return queue(among_all(
      comm, {kReduceScatter, type, count},
      [=](int j) {
        return static_cast<const char*>(from) + static_cast<std::size_t>(j) * count * size_of(type);
      },
      [=](const Parts& parts) { sum_up(to, parts, count, type); }));
}
EXPORT int ncclAllGather(const void* from, void* to, std::size_t count, int type, ncclComm* comm, void*) {
  if (size_of(type) == 0) return kInvalidArgument;
  return queue(among_all(
      comm, {kAllGather, type, count}, [=](int) { return static_cast<const char*>(from); },
      [=](const Parts& parts) {
        auto* next = static_cast<char*>(to);
        for (const auto& part : parts) {
          std::memcpy(next, part.data(), part.size());
          next += part.size();
        }
      }));
}
EXPORT int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root, ncclComm* comm,
                         void*) {
  if (size_of(type) == 0) return kInvalidArgument;
  const Header header{kBroadcast, type, count};
  return queue({[=] {
                  for (int other = 0; comm->rank == root && other < comm->size; ++other)
                    if (other != root)
                      if (const int result = comm->post(other, header, from); result != kSuccess)
                        return result;
                  return kSuccess;
                },
                [=] {
                  if (comm->rank == root) {
                    if (from != to) std::memcpy(to, from, count * size_of(type));
                    return kSuccess;
                  }
                  std::vector<char> data;
                  const int result = comm->take(root, header, data);
                  if (result == kSuccess) std::memcpy(to, data.data(), data.size());
                  return result;
                }});
}
EXPORT int ncclSend(const void* from, std::size_t count, int type, int to, ncclComm* comm, void*) {
  return queue({[=] { return comm->post(to, {kMessage, type, count}, from); }, [] { return kSuccess; }});
}
EXPORT int ncclRecv(void* to, std::size_t count, int type, int from, ncclComm* comm, void*) {
  return queue({[] { return kSuccess; },
                [=] {
                  std::vector<char> data;
                  const int result = comm->take(from, {kMessage, type, count}, data);
                  if (result == kSuccess) std::memcpy(to, data.data(), data.size());
                  return result;
                }});
}
