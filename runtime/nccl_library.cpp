#include "runtime/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>
#include <type_traits>

#include "runtime/error.h"

namespace runtime {
namespace {

constexpr const char* kFile = "libnccl.so.2";
constexpr std::string_view kNone = "none";
constexpr const char* kInstall =
    "libnccl2 is in NVIDIA's repository for Debian and Ubuntu, and PyPI has it as nvidia-nccl-cu12 and "
    "nvidia-nccl-cu13";
// The first with sums in bf16, and the first of another interface.
constexpr int kOldest = 21000, kNewest = 30000;

std::string named_file() {
  const char* const named = std::getenv("RIDGEPOINT_NCCL");
  return named != nullptr ? named : "";
}

std::string text_of_version(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

NcclLibrary load() {
  const std::string named = named_file(), file = named.empty() ? kFile : named;
  if (named == kNone) throw NoDevice("NCCL is switched off by RIDGEPOINT_NCCL=none");
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw NoDevice(
        "NCCL, by which ranks that have a GPU each exchange, does not load: " + std::string(dlerror()) +
        "; " + kInstall +
        "; RIDGEPOINT_NCCL names a file elsewhere, and none to exchange through the host's memory");
  NcclLibrary nccl;
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
    if (function == nullptr)
      throw NoDevice(file + " is no NCCL 2 that can be used here: it has no function " + symbol + "; " +
                     kInstall);
  };
  int (*get_version)(int*) = nullptr;
  find(get_version, "ncclGetVersion");
  find(nccl.error_string, "ncclGetErrorString");
  if (const int result = get_version(&nccl.version); result != kNcclSuccess)
    throw NoDevice(file + " does not say its version: " + nccl.error_string(result));
  if (nccl.version < kOldest || nccl.version >= kNewest)
    throw NoDevice(file + " is NCCL " + text_of_version(nccl.version) + "; here NCCL 2 from " +
                   text_of_version(kOldest) + " on is used: " + kInstall);
  find(nccl.get_unique_id, "ncclGetUniqueId");
  find(nccl.init_rank, "ncclCommInitRank");
  find(nccl.destroy, "ncclCommDestroy");
  find(nccl.abort, "ncclCommAbort");
  find(nccl.async_error, "ncclCommGetAsyncError");
  find(nccl.group_start, "ncclGroupStart");
  find(nccl.group_end, "ncclGroupEnd");
  find(nccl.all_reduce, "ncclAllReduce");
  find(nccl.reduce, "ncclReduce");
  find(nccl.broadcast, "ncclBroadcast");
  find(nccl.reduce_scatter, "ncclReduceScatter");
  find(nccl.all_gather, "ncclAllGather");
  find(nccl.send, "ncclSend");
  find(nccl.receive, "ncclRecv");
  return nccl;
}

}  // namespace

std::string NcclLibrary::version_text() const {
  return text_of_version(version);
}

const NcclLibrary& nccl_library() {
  static const NcclLibrary library = load();
  return library;
}

bool nccl_is_switched_off() {
  return named_file() == kNone;
}

NcclStatus nccl_status() {
  try {
    return {true, "NCCL " + nccl_library().version_text() + ": ranks that have a GPU each exchange by it"};
  } catch (const NoDevice& reason) {
    return {false, reason.what()};
  }
}

}  // namespace runtime
