// The hardware preset "this-machine": peaks and kernels measured once, cached, and used by every prediction
// for it.
#pragma once
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>

#include "runtime/communicator.h"
#include "runtime/train.h"
#include "sim/cost/calibration.h"

namespace runtime {

// $XDG_CACHE_HOME/ridgepoint or ~/.cache/ridgepoint; this does not create it. Nothing where neither
// XDG_CACHE_HOME nor HOME is set.
std::optional<std::filesystem::path> cache_directory();

// The same for callers that write: created if missing. Throws InputError, one sentence, where it cannot be.
std::filesystem::path writable_cache_directory();

// A calibration that this program keeps there; nothing where there is none. One that is damaged or of another
// version is set aside with a sentence. Throws std::system_error, with the file's name, where the disk fails.
std::optional<sim::Calibration> cached_calibration(const std::filesystem::path& name);

// When a file in the folder of calibrations was last added, removed or replaced by a rename, as this program
// writes all of them. file_time_type::min() where there is no folder.
std::filesystem::file_time_type calibrations_folder_changed();
// When a calibration there was last added, changed or removed, by any program. Looks at every
// file.
std::filesystem::file_time_type calibrations_changed();

// Where the calibration of this-machine is kept. The file records the CPU's name, the thread count and the
// kernels' code, so that another machine's is not taken for it. There is one file for each number of threads
// that kernels use (threads(); all cores unless a run says otherwise). Throws as writable_cache_directory().
std::filesystem::path this_machine_file();
std::optional<sim::Calibration> cached_this_machine();

// Measures (calibrate_cpu()) and writes the cache. Progress goes to the sink. `threads`: 0 is all cores. If
// it is stopped, it keeps what it has timed and says so on stderr, and the next call goes on from there.
sim::Calibration calibrate_this_machine(const EventSink& sink, std::stop_token stop, int threads = 0);
// Whether there is something to go on from, for as many threads as kernels use now.
bool this_machine_is_begun();

// The cached calibration; without one, measures, with as many threads as kernels use now. If the cache cannot
// be written, a sentence on stderr says so, and the next run measures again.
sim::Calibration this_machine(const EventSink& sink, std::stop_token stop);

// This machine's calibration for each of several ranks that share its cores: kernels timed while all ranks
// run them at once, and the ranks' collectives. Gives the cached one; nothing where this number of ranks was
// not measured.
std::optional<sim::Calibration> cached_machine_of_ranks(int ranks);
// The same, but measures and keeps it where it is not cached, or with `afresh`. Every rank calls it with its
// kernels' number of threads. The first rank's result is kept, and progress goes to the first rank's sink.
sim::Calibration machine_of_ranks(Communicator& communicator, int threads, bool afresh, const EventSink& sink,
                                  const std::stop_token& stop);

std::string blas_name();            // as it calls itself; loads it, and throws NoDevice where that fails
std::string fp32_products_name();   // what forms large products: "OpenBLAS", "AVX-512"
std::string bf16_products_name();   // the instructions that they are formed by: "AMX"
std::string cpu_name();             // "Intel Xeon ..., 2 threads": as many as kernels use
std::string cpu_name(int threads);  // "Intel Xeon ..., 1 thread"
sim::Bytes physical_memory();       // of the machine or of its control group, whichever is less
sim::Bytes resident_memory();       // of this process

}  // namespace runtime
