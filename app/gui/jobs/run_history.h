// The runs that ended, newest first, kept from one session to the next.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "sim/report/report.h"

namespace app::gui {

class RunHistory {
 public:
  static constexpr std::size_t kMost = 20;

  // Reads what the folder has; one that cannot be read is set aside. An empty path: nothing is kept.
  explicit RunHistory(std::filesystem::path folder);
  // The oldest goes where there are too many.
  void add(std::shared_ptr<const sim::Report> report);
  const std::vector<std::shared_ptr<const sim::Report>>& all() const { return all_; }
  // Why the newest is only in memory, a sentence; empty: it is kept.
  const std::string& failure() const { return failure_; }

 private:
  std::filesystem::path folder_;
  std::vector<std::shared_ptr<const sim::Report>> all_;
  std::string failure_;
};

}  // namespace app::gui
