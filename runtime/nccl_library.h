// NCCL, NVIDIA's library of collectives between GPUs, loaded when ranks that have a GPU each first need it.
// It may be absent, old or broken. One sentence then says which of these.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace runtime {

// The part of NCCL's interface used here, as NVIDIA's documentation of NCCL 2 has it (docs.nvidia.com/
// deeplearning/nccl/user-guide, "NCCL API"): values of its enumerations, and a pointer to each function.
struct NcclUniqueId {
  std::array<char, 128> bytes;  // NCCL_UNIQUE_ID_BYTES
};
using NcclCommunicator = struct ncclComm*;
using NcclStream = void*;  // cudaStream_t
enum class NcclType : int { uint8 = 1, float16 = 6, float32 = 7, float64 = 8, bfloat16 = 9 };
enum class NcclSum : int { sum = 0 };
constexpr int kNcclSuccess = 0, kNcclInProgress = 7;

struct NcclLibrary {
  int version = 0;  // 10000 major + 100 minor + patch

  const char* (*error_string)(int result) = nullptr;
  int (*get_unique_id)(NcclUniqueId* id) = nullptr;
  int (*init_rank)(NcclCommunicator* made, int ranks, NcclUniqueId id, int rank) = nullptr;
  int (*destroy)(NcclCommunicator) = nullptr;
  int (*abort)(NcclCommunicator) = nullptr;
  int (*async_error)(NcclCommunicator, int* result) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_reduce)(const void* from, void* to, std::size_t count, NcclType, NcclSum, NcclCommunicator,
                    NcclStream) = nullptr;
  int (*reduce)(const void* from, void* to, std::size_t count, NcclType, NcclSum, int root, NcclCommunicator,
                NcclStream) = nullptr;
  int (*broadcast)(const void* from, void* to, std::size_t count, NcclType, int root, NcclCommunicator,
                   NcclStream) = nullptr;
  int (*reduce_scatter)(const void* from, void* to, std::size_t count, NcclType, NcclSum, NcclCommunicator,
                        NcclStream) = nullptr;
  int (*all_gather)(const void* from, void* to, std::size_t count, NcclType, NcclCommunicator,
                    NcclStream) = nullptr;
  int (*send)(const void* from, std::size_t count, NcclType, int to, NcclCommunicator, NcclStream) = nullptr;
  int (*receive)(void* to, std::size_t count, NcclType, int from, NcclCommunicator, NcclStream) = nullptr;

  // "2.27.3".
  std::string version_text() const;
};

// Loaded once, never unloaded. RIDGEPOINT_NCCL names another file than libnccl.so.2. Throws NoDevice with a
// sentence that says what is missing and what to install.
const NcclLibrary& nccl_library();

// Where RIDGEPOINT_NCCL is "none": ranks exchange through the host's memory, whatever GPUs they have.
bool nccl_is_switched_off();

struct NcclStatus {
  bool loads = false;
  std::string sentence;
};
NcclStatus nccl_status();

}  // namespace runtime
