// Whether other programs keep cores busy that this one's threads want: what is timed meanwhile is too slow.
#pragma once
#include <optional>

namespace runtime {

// Reads the system's accounts of processor time, which tick every 10 ms: intervals shorter than some 0.2 s
// say little.
class OtherLoad {
 public:
  OtherLoad();
  bool known() const { return last_.has_value(); }  // Linux tells; other systems may not

  struct Use {
    double seconds = 0;  // of wall clock since the last look
    double cores = 0;    // that others kept busy in the mean, taken by a host's other guests included
    double missed = 0;   // of those, what was not free beside `threads` of our own
  };
  // Since the last look, or since the beginning. Zero where it is not known.
  Use look(int threads);

 private:
  struct Accounts {
    double wall = 0, busy = 0, own = 0;  // seconds; busy: of all cores together
    int cores = 0;
  };
  static std::optional<Accounts> read();
  std::optional<Accounts> last_;
};

}  // namespace runtime
