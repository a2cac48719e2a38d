#include "runtime/other_load.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

namespace runtime {

OtherLoad::OtherLoad() : last_(read()) {}

// /proc/stat: "cpu user nice system idle iowait irq softirq steal ..." in ticks, then a line for each core.
std::optional<OtherLoad::Accounts> OtherLoad::read() {
  std::ifstream file("/proc/stat");
  std::string line, word;
  if (!std::getline(file, line)) return std::nullopt;
  std::istringstream in(line);
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft = 0, stolen = 0;
  if (!(in >> word >> user >> nice >> system >> idle >> waiting >> interrupts >> soft >> stolen))
    return std::nullopt;
  Accounts now;
  now.busy = (user + nice + system + interrupts + soft + stolen) / static_cast<double>(sysconf(_SC_CLK_TCK));
  while (std::getline(file, line) && line.rfind("cpu", 0) == 0) ++now.cores;
  now.wall = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  timespec own{};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own) != 0) return std::nullopt;
  now.own = static_cast<double>(own.tv_sec) + 1e-9 * static_cast<double>(own.tv_nsec);
  return now;
}

OtherLoad::Use OtherLoad::look(int threads) {
  const std::optional<Accounts> now = read();
  if (!now || !last_ || now->wall <= last_->wall) return {};
  Use use;
  use.seconds = now->wall - last_->wall;
  use.cores = std::max(0.0, (now->busy - last_->busy - (now->own - last_->own)) / use.seconds);
  use.missed = std::max(0.0, use.cores - std::max(0, now->cores - threads));
  last_ = now;
  return use;
}

}  // namespace runtime
