// Writes a run's events: as NDJSON on stdout (--stream), into a file (--record), and as progress on
// stderr.
#pragma once
#include <fstream>
#include <memory>
#include <string>

#include "app/cli/progress.h"
#include "runtime/train.h"

namespace CLI {
class App;
}

namespace app::cli {

struct EventFlags {
  bool stream = false;
  std::string record;  // file; empty: none
  void add_to(CLI::App& command);
};

class EventOutput {
 public:
  explicit EventOutput(const EventFlags& flags);

  void write(const sim::Event& event);
  runtime::EventSink sink() {
    return [this](const sim::Event& event) { write(event); };
  }
  Progress& progress() { return progress_; }

 private:
  bool stream_;
  bool show_progress_;
  std::string record_path_;
  std::ofstream record_;
  Progress progress_;
};

}  // namespace app::cli
