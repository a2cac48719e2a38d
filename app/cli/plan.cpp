// ridgepoint plan: searches strategies of training, or ways to serve, alone or spread over the processes that
// mpirun started; what is finished goes to a journal.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <variant>

#include "app/cli/command.h"
#include "app/cli/event_output.h"
#include "app/cli/exit_code.h"
#include "app/cli/interrupt.h"
#include "app/cli/plan_output.h"
#include "runtime/error.h"
#include "runtime/machine_files.h"
#include "runtime/process_group.h"
#include "runtime/spread_work.h"
#include "runtime/work_journal.h"
#include "sim/format.h"
#include "sim/planner/schedule_facts.h"

namespace app::cli {

namespace {

using Clock = std::chrono::steady_clock;

// A range of one search's candidates. Processes receive work in such pieces.
struct Piece {
  std::size_t search = 0;
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
};

// The number of threads for this process. Other processes started with it on this machine compute too.
int threads_of(const PlanFlags& flags) {
  if (flags.threads > 0) return static_cast<int>(std::min<std::int64_t>(flags.threads, 1024));
  return std::max(1, static_cast<int>(runtime::own_cpus().size()) / runtime::launched().on_this_machine);
}

std::int64_t looked_at(const PlanFound& found) {
  if (const auto* training = std::get_if<sim::SearchResult>(&found)) return training->looked_at;
  if (const auto* serving = std::get_if<sim::ServingResult>(&found)) return serving->looked_at;
  return 0;
}

// The end of a range that begins at `begin` and has about `about` candidates. It falls on the end of a
// layout, or of a part of one.
std::int64_t end_of_range(const PlanSearch& search, std::int64_t begin, std::int64_t about) {
  const auto* training = std::get_if<TrainingSearch>(&search.of);
  if (!training) return begin + about;
  const std::int64_t layout = sim::candidates_of_layout(training->space);
  if (layout <= about) return begin + (about + layout - 1) / layout * layout;
  const std::int64_t parts = (layout + about - 1) / about, each = (layout + parts - 1) / parts;
  return std::min(begin + each, (begin / layout + 1) * layout);
}

// Neighbouring candidates share results, so a search that is neither divided nor resumable is one piece.
std::vector<Piece> pieces_of(const std::vector<PlanSearch>& searches, const PlanFlags& flags, bool divided) {
  constexpr std::int64_t kPieces = 64, kLeastOfTraining = 50'000;
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < searches.size(); ++i) {
    const std::int64_t size = candidates(searches[i]);
    std::int64_t each = std::max<std::int64_t>(1, size);
    if (flags.range > 0) {
      each = flags.range;
    } else if (divided) {
      const bool training = std::holds_alternative<TrainingSearch>(searches[i].of);
      each = std::max<std::int64_t>((size + kPieces - 1) / kPieces, training ? kLeastOfTraining : 1);
    }
    for (std::int64_t begin = 0, end = 0; begin < size; begin = end) {
      end = std::min(size, flags.range > 0 ? begin + each : end_of_range(searches[i], begin, each));
      pieces.push_back({i, begin, end});
    }
  }
  return pieces;
}

// Shows on stderr how many candidates are done and how much time is left.
class PlanProgress {
 public:
  PlanProgress(Progress& progress, std::int64_t total) : progress_(progress), total_(total) {}

  void known(std::int64_t candidates) {
    done_ += candidates;
    known_ += candidates;
  }
  void finished(std::int64_t candidates) {
    done_ += candidates;
    inside(0);
  }
  // Progress inside a piece, where this process works alone.
  void inside(std::int64_t candidates) {
    inside_ = candidates;
    const std::int64_t done = done_ + inside_;
    const std::chrono::duration<double> spent = Clock::now() - began_;
    const std::int64_t own = done - known_;
    const double left =
        own > 0 ? spent.count() * static_cast<double>(total_ - done) / static_cast<double>(own) : 0;
    progress_.show(sim::ProgressEvent{"candidates", done, total_, sim::Seconds{left}});
  }
  std::string sentence() const {
    const std::chrono::duration<double> spent = Clock::now() - began_;
    return fmt::format("ridgepoint: {} candidates in {}", sim::format_count(done_ + inside_ - known_),
                       sim::format(sim::Seconds{spent.count()}));
  }

 private:
  Progress& progress_;
  std::int64_t total_, done_ = 0, known_ = 0, inside_ = 0;
  Clock::time_point began_ = Clock::now();
};

std::optional<runtime::WorkJournal> journal_of(const PlanFlags& flags,
                                               const std::vector<PlanSearch>& searches,
                                               const std::vector<Piece>& pieces) {
  if (flags.journal.empty()) return std::nullopt;
  std::string work;
  for (const PlanSearch& search : searches) work += description(search, flags.top) + '\n';
  for (const Piece& p : pieces) work += fmt::format("{} {} {};", p.search, p.begin, p.end);
  const auto count = static_cast<std::int64_t>(pieces.size());
  return flags.resume ? runtime::WorkJournal::resume(flags.journal, work, count)
                      : runtime::WorkJournal::begin(flags.journal, work, count);
}

std::vector<PlanSearch> searches_of(const PlanFlags& flags, const runtime::EventSink& sink,
                                    const std::stop_token& stop) {
  std::vector<PlanSearch> searches;
  if (flags.sweep.empty()) {
    searches.push_back(make_search(flags, {}, sink, stop));
    return searches;
  }
  std::size_t kind = std::variant_npos;
  for (const Variation& variation : read_sweep(flags.sweep)) {
    try {
      searches.push_back(make_search(flags, variation, sink, stop));
    } catch (const UsageError& error) {
      throw runtime::InputError(fmt::format("{} ({}): {}", flags.sweep, text_of(variation), error.what()));
    }
    const auto& of = searches.back().of;
    if (std::holds_alternative<std::monostate>(of)) continue;
    if (kind != std::variant_npos && of.index() != kind)
      throw runtime::InputError(flags.sweep +
                                " vary: some are of training and some of generation; a sweep is of one");
    kind = of.index();
  }
  return searches;
}

void check(const PlanFlags& flags) {
  if (flags.top < 1) throw UsageError("--top must be 1 or more");
  if (flags.range < 0) throw UsageError("--range must be 0 (chosen) or more");
  if (flags.threads < 0) throw UsageError("--threads must be 0 (as many as there are) or more");
  if (flags.resume && flags.journal.empty())
    throw UsageError("--resume goes on with a journal: --journal says which");
  if (flags.requests_per_second && !(*flags.requests_per_second > 0))
    throw UsageError("--requests-per-second must be above 0");
  if (!(flags.minutes > 0)) throw UsageError("--minutes must be above 0");
}

// The plan command in one process, which may be one of a group.
class Plan {
 public:
  Plan(const PlanFlags& flags, const InterruptSignals& interrupt, EventOutput& events)
      : flags_(flags), interrupt_(interrupt), events_(events) {}

  ExitCode run() {
    check(flags_);
    outcome_.searches = searches_of(flags_, events_.sink(), interrupt_.stop());
    outcome_.found.resize(outcome_.searches.size());
    pieces_ = pieces_of(outcome_.searches, flags_, runtime::launched().size > 1 || !flags_.journal.empty());
    options_ = {.threads = threads_of(flags_),
                .most_kept = static_cast<std::size_t>(flags_.top),
                .stop = {},
                .on_progress = {},
                .schedules = std::make_shared<sim::Schedules>()};
    if (is_first()) journal_ = journal_of(flags_, outcome_.searches, pieces_);
    // The flags are checked before this point, because a process that joins stays until all are done.
    group_ = runtime::join_process_group();
    return is_first() ? run_first() : run_other();
  }

 private:
  static bool is_first() { return runtime::launched().rank == 0; }

  runtime::DoPiece work(PlanProgress* progress) {
    return [this, progress](std::int64_t number, const std::stop_token& stop) {
      const Piece& piece = pieces_[static_cast<std::size_t>(number)];
      RangeOptions options = options_;
      options.stop = stop;
      if (progress != nullptr)
        options.on_progress = [progress](std::int64_t done) { progress->inside(done); };
      return search_range(outcome_.searches[piece.search], piece.begin, piece.end, options);
    };
  }

  ExitCode run_other() {
    const auto warn = [this](const std::string& sentence) {
      events_.progress().note(
          "ridgepoint: " + sentence +
          (flags_.journal.empty() ? std::string() : "; " + flags_.journal + " keeps what it had finished"));
    };
    const runtime::SpreadResult end = runtime::spread_work(
        std::vector<std::optional<std::string>>(pieces_.size()), work(nullptr),
        {.group = group_.get(), .stop = interrupt_.stop(), .on_finished = {}, .warn = warn});
    return leave(end.end, ExitCode::fine);
  }

  ExitCode run_first() {
    std::vector<std::optional<std::string>> known(pieces_.size());
    if (journal_) known = journal_->known();
    std::int64_t total = 0;
    for (const Piece& piece : pieces_) total += piece.count();
    PlanProgress progress(events_.progress(), total);
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      if (known[i]) {
        // An invalid result in the journal is refused now, before the rest is searched.
        PlanFound alone;
        merge(outcome_.searches[pieces_[i].search], alone, *known[i], options_.most_kept,
              fmt::format("{}: piece {}", flags_.journal, i));
        progress.known(pieces_[i].count());
        note_finished(static_cast<std::int64_t>(i));
      }
    const auto on_finished = [&](std::int64_t piece, const std::string& result) {
      if (journal_) journal_->add(piece, result);
      note_finished(piece);
      progress.finished(pieces_[static_cast<std::size_t>(piece)].count());
    };
    const runtime::SpreadResult result =
        runtime::spread_work(std::move(known), work(group_ == nullptr ? &progress : nullptr),
                             {.group = group_.get(),
                              .stop = interrupt_.stop(),
                              .on_finished = on_finished,
                              // Warn at once: the launcher leaves little time.
                              .warn = [this](const std::string& sentence) { tell_end(sentence); }});
    events_.progress().note(progress.sentence());
    gather(result);
    outcome_.complete = result.end == runtime::SpreadEnd::done;
    if (result.end == runtime::SpreadEnd::interrupted) tell_end("interrupted");
    fmt::print("{}", plan_as(outcome_, flags_));
    std::fflush(stdout);
    return leave(result.end, conclude());
  }

  void gather(const runtime::SpreadResult& result) {
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      if (result.finished[i]) add(pieces_[i].search, *result.finished[i]);
    for (const auto& [piece, part] : result.unfinished) {
      const std::size_t search = pieces_[static_cast<std::size_t>(piece)].search;
      const std::int64_t before = looked_at(outcome_.found[search]);
      add(search, part);
      begun_candidates_ += looked_at(outcome_.found[search]) - before;
    }
    begun_ranges_ = static_cast<std::int64_t>(result.unfinished.size());
  }
  void add(std::size_t search, const std::string& range) {
    merge(outcome_.searches[search], outcome_.found[search], range, options_.most_kept, "a finished range");
  }

  void note_finished(std::int64_t piece) {
    ++finished_ranges_;
    finished_candidates_ += pieces_[static_cast<std::size_t>(piece)].count();
  }

  void tell_end(const std::string& why) {
    std::int64_t total = 0;
    for (const Piece& piece : pieces_) total += piece.count();
    std::string text = "ridgepoint: " + why;
    if (pieces_.size() > 1)
      text += fmt::format("; finished were {} of {} ranges, {} of {} candidates", finished_ranges_,
                          pieces_.size(), sim::format_count(finished_candidates_), sim::format_count(total));
    if (!flags_.journal.empty())
      text += fmt::format(", which {} keeps: --resume goes on with them", flags_.journal);
    if (begun_ranges_ > 0)
      text += fmt::format(
          "; {} candidates of {} that {} begun are in the table too{}", sim::format_count(begun_candidates_),
          begun_ranges_ == 1 ? "a range" : fmt::format("{} ranges", begun_ranges_),
          begun_ranges_ == 1 ? "was" : "were", flags_.journal.empty() ? "" : ", but not in the journal");
    events_.progress().note(text);
  }

  // Checks whether something was found. If nothing was, it says what would do.
  ExitCode conclude() {
    if (!outcome_.complete) return ExitCode::fine;
    const bool any = std::any_of(outcome_.found.begin(), outcome_.found.end(), any_fits);
    if (any) return ExitCode::fine;
    const PlanSearch& search = outcome_.searches.front();
    RangeOptions options = options_;
    options.stop = interrupt_.stop();
    std::string why = "nothing fits";
    if (flags_.sweep.empty())
      why += ": " + nearest_that_would_do(search, outcome_.found.front(), flags_, options);
    events_.progress().note("ridgepoint: " + why);
    return ExitCode::constraint;
  }

  // The last action of a process.
  ExitCode leave(runtime::SpreadEnd end, ExitCode code) {
    if (end == runtime::SpreadEnd::interrupted) code = ExitCode::interrupted;
    if (end == runtime::SpreadEnd::process_lost) code = ExitCode::device_error;
    if (group_ == nullptr) return code;
    if (end == runtime::SpreadEnd::done) {
      group_->leave();
      return code;
    }
    // MPI cannot shut down in order when other processes are gone or going.
    std::fflush(nullptr);
    _exit(static_cast<int>(code));
  }

  const PlanFlags& flags_;
  const InterruptSignals& interrupt_;
  EventOutput& events_;
  std::optional<runtime::WorkJournal> journal_;  // only in the first process
  std::unique_ptr<runtime::ProcessGroup> group_;
  PlanOutcome outcome_;
  std::vector<Piece> pieces_;
  // Ranges that an interruption left half done in any process, and the candidates looked at in them.
  std::int64_t begun_ranges_ = 0, begun_candidates_ = 0;
  std::int64_t finished_ranges_ = 0, finished_candidates_ = 0;
  RangeOptions options_;
};

ExitCode plan(const PlanFlags& flags) {
  const InterruptSignals interrupt;
  EventOutput events({});
  try {
    return Plan(flags, interrupt, events).run();
  } catch (...) {
    // An error is the same for all processes that were started together, so only one reports it.
    if (runtime::launched().rank == 0) throw;
    return failure_of(std::current_exception()).code;
  }
}

}  // namespace

void add_plan(CLI::App& program, Invocation& invocation) {
  const auto flags = std::make_shared<PlanFlags>();
  CLI::App* command = program.add_subcommand(
      "plan",
      describe("Search configurations under constraints: all strategies of training, all ways to serve.",
               {"ridgepoint plan --model llama-3.1-8b --gpus 64 --seq-len 8k --global-batch 512",
                "ridgepoint plan --model llama-3.1-70b --gpus 256 --seq-len 8k --global-batch 1024 "
                "--implementation megatron_2022 --memory-share 0.9",
                "ridgepoint plan --model llama-3.1-8b --gpus 64 --search gpus=32,64,128 --objective money "
                "--slowest-step-s 10",
                "ridgepoint plan --task generate --model llama-3.1-70b --implementation vllm_0.14 --gpus 8 "
                "--prompt-length 1k --max-new-tokens 256 --most-tpot-ms 40 --search weights-dtype=bf16,fp8",
                "ridgepoint plan --sweep sweep.json --journal sweep.ndjson",
                "mpirun -n 4 ridgepoint plan --sweep sweep.json --journal sweep.ndjson --resume"}));
  flags->add_to(*command);
  command->callback([flags, &invocation] { invocation.run = [flags] { return plan(*flags); }; });
}

}  // namespace app::cli
