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

// $XDG_CACHE_HOME/ridgepoint or ~/.cache/ridgepoint, made by who writes there; nothing where neither
// XDG_CACHE_HOME nor HOME is set.
std::optional<std::filesystem::path> cache_directory();

// The same for who writes: made if missing. Throws InputError, one sentence, where that cannot be.
std::filesystem::path writable_cache_directory();

// A calibration that this program keeps there; nothing where there is none. One that is damaged or of another
// version is set aside with a sentence. Throws std::system_error, with the file's name, where the disk fails.
std::optional<sim::Calibration> cached_calibration(const std::filesystem::path& name);

// When a file last came to the folder of calibrations, went, or was renamed over, as this program writes all
// of them; the least time there is where no folder is.
std::filesystem::file_time_type calibrations_folder_changed();
// When a calibration that is kept there last came, changed or went, by whatever hand: every file is looked
// at.
std::filesystem::file_time_type calibrations_changed();

// Where this-machine's calibration is kept; it bears the CPU's name, thread count and the kernels' code,
// and another machine's is not taken for it. A file for each number of threads that kernels use (threads();
// all cores unless a run says otherwise). Throws as writable_cache_directory().
std::filesystem::path this_machine_file();
std::optional<sim::Calibration> cached_this_machine();

// Measures (calibrate_cpu()) and writes the cache. Progress goes to the sink. `threads`: 0 is all cores. What
// was timed when it is stopped is kept, a sentence on stderr says so, and the next call goes on from there.
sim::Calibration calibrate_this_machine(const EventSink& sink, std::stop_token stop, int threads = 0);
// Whether there is something to go on from, for as many threads as kernels use now.
bool this_machine_is_begun();

// The cached one, else measures, with as many threads as kernels use now; a cache that cannot be written
// costs a sentence on stderr, and the next run measures again.
sim::Calibration this_machine(const EventSink& sink, std::stop_token stop);

// This machine as it is for each of several ranks on their shares of its cores: kernels as they are while all
// run them at once, and the ranks' collectives. The cached one; nothing where ranks as many were not
// measured.
std::optional<sim::Calibration> cached_machine_of_ranks(int ranks);
// The same, measured and kept where it is not known, or `afresh`. Every rank calls it with the number of its
// kernels' threads; what the first returns is the one that is kept. Progress goes to the first one's sink.
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
