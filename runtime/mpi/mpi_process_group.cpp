// A ProcessGroup of MPI's ranks.
#include <mpi.h>

#include <map>
#include <utility>

#include "runtime/process_group.h"

namespace runtime {
namespace {

constexpr int kPart = 1, kLastPart = 2;  // tags
// Messages go in parts that MPI sends whole at once, without asking the receiver first (Open MPI's eager
// limit is 4 KiB between processes of a machine). So no part is half here when its sender is killed, which
// would end or block its receiver.
constexpr std::size_t kLargestPart = 2048;

class MpiProcessGroup final : public ProcessGroup {
 public:
  MpiProcessGroup() {
    int provided = 0;
    // Other threads compute while this one talks.
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void send(int to, const std::string& text) override {
    std::size_t begin = 0;
    for (; text.size() - begin > kLargestPart; begin += kLargestPart)
      send_part(to, text, begin, kLargestPart, kPart);
    send_part(to, text, begin, text.size() - begin, kLastPart);
  }

  std::optional<Message> receive() override {
    for (;;) {
      int arrived = 0;
      MPI_Status status;
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &arrived, &status);
      if (arrived == 0) return std::nullopt;
      int length = 0;
      MPI_Get_count(&status, MPI_CHAR, &length);
      std::string& text = incomplete_[status.MPI_SOURCE];
      const std::size_t before = text.size();
      text.resize(before + static_cast<std::size_t>(length));
      MPI_Recv(text.data() + before, length, MPI_CHAR, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
      if (status.MPI_TAG == kLastPart) return Message{status.MPI_SOURCE, std::exchange(text, {})};
    }
  }

  void leave() override { MPI_Finalize(); }

 private:
  void send_part(int to, const std::string& text, std::size_t begin, std::size_t size, int tag) const {
    MPI_Send(text.data() + begin, static_cast<int>(size), MPI_CHAR, to, tag, MPI_COMM_WORLD);
  }

  int rank_ = 0, size_ = 1;
  std::map<int, std::string> incomplete_;  // by sender: the parts that have arrived
};

}  // namespace
}  // namespace runtime

extern "C" const runtime::MpiBackend* ridgepoint_mpi_backend() {
  static constexpr runtime::MpiBackend backend{RIDGEPOINT_VERSION,
                                               []() -> std::unique_ptr<runtime::ProcessGroup> {
                                                 return std::make_unique<runtime::MpiProcessGroup>();
                                               }};
  return &backend;
}
