// From an executor's timings to the rows and the ledger of a measured report.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "runtime/executor.h"
#include "sim/report/report.h"

namespace runtime {

// One row for each of the executor's rows that sections [0, sections) run, with the work of those executions;
// times are zero. Parallel to Executor::rows() (count 0 where a row has not run).
std::vector<sim::Row> rows_with_work(const sim::Plan& plan, const Executor& executor, std::size_t sections);

// `rows` have the durations of one of several runs, the one that counts. Each row gets the median of its
// `times` in all runs (parallel to `rows`). Then all are scaled by one factor, so that their sum is that of
// the run that counts. A row without times stays as it is. The reason for medians: in a single run, an
// interruption may have lengthened any operation.
void set_medians(std::span<sim::Row> rows, std::span<const std::vector<double>> times);

// Marks all time of each exchange's row as exposed, since nothing runs beside it. Set durations before.
void set_exposed(std::span<sim::Row> rows);

// For rows of all ranks. A rank that comes early to an exchange waits in it for the last one. So what a rank
// took longer than the rank with the least time in the same exchange is waiting, and not exposed.
void leave_waiting_out(std::span<sim::Row> rows);

// The ledger: classes at the planned peak, what packing adds up to the arena's high-water mark, and what is
// in use of the device's memory beyond the arena: the parts that the device knows, and "platform", the rest.
std::vector<sim::MemoryLine> measured_ledger(const sim::MemoryPlan& memory, const Arena& arena,
                                             sim::Bytes in_use, const std::vector<PlatformMemory>& platform);

// Live bytes over measured time: `stamps` are the seconds at which each operation of the program started, and
// the end.
std::vector<sim::MemoryTimePoint> measured_timeline(const sim::Plan& plan, const sim::MemoryPlan& memory,
                                                    std::span<const double> stamps);

// "2026-11-21T15:42:21Z"
std::string utc_now();

}  // namespace runtime
