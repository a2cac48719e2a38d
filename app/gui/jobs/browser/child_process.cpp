#include "app/gui/jobs/child_process.h"

#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "app/cli/command_line.h"
#include "app/gui/browser/page.h"

namespace app::gui {
namespace {

struct Child {
  ChildProcess::OnLine on_line;
  ChildProcess::OnEnd on_end;
  int number;
  std::string last_words = {};
  bool ended = false, cancelled = false;

  void end(int exit_code) {
    if (std::exchange(ended, true)) return;
    ChildEnd end{exit_code, {}};
    if (exit_code != 0 && !cancelled)
      end.message = last_words.empty()
                        ? "The run ended with exit code " + std::to_string(exit_code) + " and no message."
                        : last_words;
    on_end(end);
  }
};

// Those whose workers may still say something, by their numbers.
std::map<int, Child*>& children() {
  static std::map<int, Child*> known;
  return known;
}

Child* child(int number) {
  const auto found = children().find(number);
  return found == children().end() ? nullptr : found->second;
}

// Who hears the lines of a command that runs in the page itself; null: none does.
struct Heard {
  const ChildProcess::OnLine& on_line;
  std::string last_words = {};
};
Heard* heard = nullptr;

}  // namespace

struct ChildProcess::State : Child {};

ChildProcess::ChildProcess(std::vector<std::string> command, OnLine on_line, OnPause, OnEnd on_end) {
  static int started = 0;
  state_ = std::make_unique<State>(Child{std::move(on_line), std::move(on_end), ++started});
  children()[state_->number] = state_.get();
  const nlohmann::json arguments = std::vector<std::string>(command.begin() + 1, command.end());
  page_start_worker(state_->number, arguments.dump().c_str());
}

ChildProcess::~ChildProcess() {
  page_end_worker(state_->number);
  children().erase(state_->number);
}

void ChildProcess::cancel(std::chrono::milliseconds) {
  constexpr int kInterrupted = 130;
  state_->cancelled = true;
  page_end_worker(state_->number);
  state_->end(kInterrupted);
}

bool ChildProcess::ended() const {
  return state_->ended;
}

void run_to_end(std::vector<std::string> command, ChildProcess::OnLine on_line,
                const std::function<bool()>& stopped) {
  if (stopped()) return;
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  Heard listener{on_line};
  heard = &listener;
  page_catch_lines(1);
  const int code = cli::run_command_line(static_cast<int>(command.size()), arguments.data());
  page_catch_lines(0);
  heard = nullptr;
  if (code != 0)
    throw std::runtime_error(listener.last_words.empty()
                                 ? "It ended with exit code " + std::to_string(code) + "."
                                 : listener.last_words);
}

}  // namespace app::gui

// Called by page.js.
extern "C" {

[[gnu::used]] void page_child_line(int number, const char* line) {
  if (app::gui::Child* const child = app::gui::child(number)) child->on_line(line);
}

[[gnu::used]] void page_child_words(int number, const char* line) {
  if (app::gui::Child* const child = app::gui::child(number); child && *line != '\0')
    child->last_words = line;
}

[[gnu::used]] void page_child_end(int number, int exit_code) {
  if (app::gui::Child* const child = app::gui::child(number)) child->end(exit_code);
}

[[gnu::used]] void page_line(const char* line) {
  if (app::gui::heard) app::gui::heard->on_line(line);
}

[[gnu::used]] void page_words(const char* line) {
  if (app::gui::heard && *line != '\0') app::gui::heard->last_words = line;
}
}
