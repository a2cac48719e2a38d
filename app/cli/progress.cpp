#include "app/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "sim/format.h"

namespace app::cli {

namespace {

// Rewrites often enough to show that it is alive, seldom enough for a log.
constexpr std::chrono::milliseconds kRewriteEvery{50};
constexpr std::chrono::seconds kLineEvery{5};

std::string left(sim::Seconds seconds) {
  return seconds.value > 0 ? ", " + sim::format(seconds) + " left" : std::string();
}

}  // namespace

void to_stderr(const std::string& text) {
  std::fputs(text.c_str(), stderr);
}

bool stderr_is_terminal() {
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  return isatty(STDERR_FILENO) != 0 && (no_color == nullptr || *no_color == '\0') && term != nullptr &&
         std::string_view(term) != "dumb";
}

Progress::Progress() : terminal_(stderr_is_terminal()) {}

Progress::~Progress() {
  if (open_line_) std::fputs("\n", stderr);
}

void Progress::line(const std::string& text, bool keep) {
  const auto now = Clock::now();
  if (terminal_) {
    if (!keep && open_line_ && now - last_shown_ < kRewriteEvery) return;
    to_stderr(fmt::format("{}\x1b[K{}", open_line_ ? "\r" + text : text, keep ? "\n" : ""));
    open_line_ = !keep;
  } else {
    if (!keep && last_shown_ != Clock::time_point{} && now - last_shown_ < kLineEvery) return;
    to_stderr(text + "\n");
  }
  std::fflush(stderr);
  if (!keep) last_shown_ = now;
}

void Progress::note(const std::string& text) {
  line(text, true);
}

void Progress::show(const sim::Event& event) {
  if (const auto* begin = std::get_if<sim::BeginEvent>(&event)) {
    planned_ = begin->planned;
    spent_ = {};
    steps_ = 0;
  } else if (const auto* progress = std::get_if<sim::ProgressEvent>(&event)) {
    line(progress->of > 0 ? fmt::format("{}: {} of {}{}", progress->what, progress->done, progress->of,
                                        left(progress->left))
                          : progress->what,
         false);
  } else if (const auto* told = std::get_if<sim::StepResult>(&event)) {
    const sim::StepResult& step = *told;
    spent_ += step.duration;
    ++steps_;
    const sim::Seconds remaining =
        spent_ * (static_cast<double>(planned_ - step.step) / static_cast<double>(steps_));
    const std::string noise =
        step.noise_scale ? fmt::format(", noise scale {} sequences", sim::format_short(*step.noise_scale))
                         : "";
    line(fmt::format("step {} of {}: loss {:.4f}, gradient norm {:.3f}{}, {} tokens/s{}", step.step, planned_,
                     step.loss, step.grad_norm, noise,
                     sim::format_short(static_cast<double>(step.tokens) / step.duration.value),
                     left(remaining)),
         step.step == planned_);
  } else if (const auto* checkpoint = std::get_if<sim::CheckpointEvent>(&event)) {
    note(fmt::format("checkpoint of step {} in {}", checkpoint->step, checkpoint->file));
  }
}

}  // namespace app::cli
