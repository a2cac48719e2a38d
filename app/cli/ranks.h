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

// That commands start which take their number.
inline constexpr int kMostRanks = 64;

// This process among those that were started together.
struct RankOfJob {
  int rank = 0, size = 1;
  int on_this_machine = 1;  // of them
  int place = 0;            // among those
  bool own_launch = false;  // started by start_ranks()
  bool is_first() const { return rank == 0; }
};
RankOfJob rank_of_job();

// Ranks that were started without degrees divide the batch. UsageError where there are degrees, and not of as
// many ranks.
void settle_degrees(sim::Strategy& strategy, const RankOfJob& job);

// Starts this program's command once more for each rank, with cores of its own, waits for all of them and
// returns how they ended. Throws runtime::DeviceError naming a rank that was killed. When one ends badly the
// others have a few seconds to end too.
ExitCode start_ranks(int ranks, const InterruptSignals& interrupt);

// Meets the others, takes the GPU that is this rank's turn where none is named, and keeps this rank to its
// share of the machine's cores, whose number becomes `device.threads` unless that is set. Ranks of one
// machine meet by sockets of its own, those of several as runtime/meeting.h says.
std::unique_ptr<runtime::Transport> join_ranks(const RankOfJob& job, runtime::DeviceChoice& device);

// Joins as above, does it as one of the ranks and returns how it ended. What goes wrong ends the others, and
// is told by the first one of each machine.
ExitCode among_ranks(const RankOfJob& job, runtime::DeviceChoice& device,
                     const std::function<ExitCode(runtime::Communicator&)>& does);

}  // namespace app::cli
