// The ranks of a run: started by this program itself, or by mpirun, srun or torchrun.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "app/cli/exit_code.h"
#include "runtime/communicator.h"
#include "runtime/devices.h"
#include "sim/scenario/scenario.h"

namespace app::cli {

class InterruptSignals;

// The most ranks that commands start if they take a number of ranks.
inline constexpr int kMostRanks = 64;

// The place of this process among the ranks that were started together.
struct RankOfJob {
  int rank = 0, size = 1;
  int on_this_machine = 1;  // ranks on this machine
  int place = 0;            // this rank's index among the ranks on this machine
  bool own_launch = false;  // started by start_ranks()
  bool is_first() const { return rank == 0; }
};
RankOfJob rank_of_job();

// Ranks that were started without degrees divide the batch. Throws UsageError where degrees are given that
// need another number of ranks.
void settle_degrees(sim::Strategy& strategy, const RankOfJob& job);

// Starts this program's command once for each rank, each with cores of its own, waits for all and returns how
// they ended. When one ends badly, the others have a few seconds to end too. Throws runtime::DeviceError that
// names a rank that was killed.
ExitCode start_ranks(int ranks, const InterruptSignals& interrupt);

// Connects with the other ranks. Takes the GPU that is this rank's turn where none is named. Keeps this rank
// to its share of the machine's cores; their number becomes `device.threads` unless that is set. Ranks of one
// machine connect by sockets of that machine, ranks of several as runtime/meeting.h says.
std::unique_ptr<runtime::Transport> join_ranks(const RankOfJob& job, runtime::DeviceChoice& device);

// Joins as above, calls `does` as one of the ranks and returns how it ended. An error also ends the other
// ranks; the first rank of each machine reports it.
ExitCode among_ranks(const RankOfJob& job, runtime::DeviceChoice& device,
                     const std::function<ExitCode(runtime::Communicator&)>& does);

}  // namespace app::cli
