#include "app/cli/event_output.h"

#include <CLI/App.hpp>
#include <cstdio>

#include "runtime/error.h"

namespace app::cli {

void EventFlags::add_to(CLI::App& command) {
  command.add_flag("--stream", stream,
                   "write what happens to stdout as it happens, an event a line (NDJSON)");
  command.add_option("--record", record, "write the same events into a file")->type_name("FILE");
}

EventOutput::EventOutput(const EventFlags& flags)
    : stream_(flags.stream),
      show_progress_(!flags.stream || stderr_is_terminal()),
      record_path_(flags.record) {
  if (record_path_.empty()) return;
  record_.open(record_path_, std::ios::binary | std::ios::trunc);
  if (!record_) throw runtime::InputError("--record: " + record_path_ + " cannot be written");
}

void EventOutput::write(const sim::Event& event) {
  if (show_progress_) progress_.show(event);
  if (!stream_ && !record_.is_open()) return;
  const std::string line = sim::to_ndjson(event) + '\n';
  if (stream_) {
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);  // someone may be reading along
  }
  if (record_.is_open() && !(record_ << line << std::flush))
    throw runtime::DeviceError("--record: " + record_path_ + " could not be written; is the disk full?");
}

}  // namespace app::cli
