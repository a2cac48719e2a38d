// A ProcessGroup of MPI's ranks.
#include <mpi.h>

#include "runtime/process_group.h"

namespace runtime {
namespace {

constexpr int kTag = 1;

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
    MPI_Send(text.data(), static_cast<int>(text.size()), MPI_CHAR, to, kTag, MPI_COMM_WORLD);
  }

  std::optional<Message> receive() override {
    int arrived = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, &arrived, &status);
    if (arrived == 0) return std::nullopt;
    int length = 0;
    MPI_Get_count(&status, MPI_CHAR, &length);
    Message message{status.MPI_SOURCE, std::string(static_cast<std::size_t>(length), '\0')};
    MPI_Recv(message.text.data(), length, MPI_CHAR, status.MPI_SOURCE, kTag, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    return message;
  }

  void leave() override { MPI_Finalize(); }

 private:
  int rank_ = 0, size_ = 1;
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
