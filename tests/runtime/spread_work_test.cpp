// Work in pieces over processes, here played by threads that pass messages; and the journal of what is done.
#include "runtime/spread_work.h"

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include "runtime/error.h"
#include "runtime/work_journal.h"
#include "tests/support/catch.h"

using runtime::PieceResult;
using runtime::ProcessGroup;
using runtime::SpreadEnd;
using runtime::SpreadResult;

namespace {

// Mailboxes in one process.
struct Mail {
  explicit Mail(int size) : boxes(static_cast<std::size_t>(size)) {}
  std::mutex mutex;
  std::vector<std::deque<ProcessGroup::Message>> boxes;
};

class ThreadGroup final : public ProcessGroup {
 public:
  ThreadGroup(Mail& mail, int rank) : mail_(mail), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(mail_.boxes.size()); }
  void send(int to, const std::string& text) override {
    const std::lock_guard lock(mail_.mutex);
    mail_.boxes[static_cast<std::size_t>(to)].push_back({rank_, text});
  }
  std::optional<Message> receive() override {
    const std::lock_guard lock(mail_.mutex);
    auto& box = mail_.boxes[static_cast<std::size_t>(rank_)];
    if (box.empty()) return std::nullopt;
    Message message = std::move(box.front());
    box.pop_front();
    return message;
  }
  void leave() override {}

 private:
  Mail& mail_;
  int rank_;
};

constexpr std::int64_t kPieces = 40;

std::string square(std::int64_t piece) {
  return "piece " + std::to_string(piece * piece) + "\nof two lines";
}

// Over so many ranks; `done_by` counts the pieces of each.
SpreadResult spread_over(
    int ranks, const runtime::DoPiece& work,
    std::vector<std::optional<std::string>> known = std::vector<std::optional<std::string>>(kPieces)) {
  if (ranks == 1) return runtime::spread_work(std::move(known), work, {});
  Mail mail(ranks);
  std::vector<std::jthread> others;
  for (int rank = 1; rank < ranks; ++rank)
    others.emplace_back([&mail, &work, rank] {
      ThreadGroup group(mail, rank);
      runtime::spread_work(std::vector<std::optional<std::string>>(kPieces), work,
                           {.group = &group, .stop = {}, .on_finished = {}, .warn = {}});
    });
  ThreadGroup group(mail, 0);
  return runtime::spread_work(std::move(known), work,
                              {.group = &group, .stop = {}, .on_finished = {}, .warn = {}});
}

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "ridgepoint-journal-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file() const { return (path_ / "journal.ndjson").string(); }

 private:
  std::filesystem::path path_;
};

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("every piece is done once, and its result has its number, over any number of processes") {
  const int ranks = GENERATE(1, 2, 4, 7);
  std::array<std::atomic<int>, kPieces> done{};
  const SpreadResult result = spread_over(ranks, [&](std::int64_t piece, const std::stop_token&) {
    ++done[static_cast<std::size_t>(piece)];
    std::this_thread::sleep_for(std::chrono::microseconds(100 * (piece % 5)));
    return PieceResult{square(piece)};
  });
  CHECK(result.end == SpreadEnd::done);
  CHECK(result.unfinished.empty());
  REQUIRE(result.finished.size() == kPieces);
  for (std::size_t i = 0; i < kPieces; ++i) {
    CHECK(done[i] == 1);
    CHECK(result.finished[i] == square(static_cast<std::int64_t>(i)));
  }
}

TEST_CASE("pieces that are known are not done again") {
  std::vector<std::optional<std::string>> known(kPieces);
  for (std::size_t i = 0; i < kPieces; i += 3) known[i] = "known";
  const SpreadResult result = spread_over(
      GENERATE(1, 3),
      [](std::int64_t piece, const std::stop_token&) {
        if (piece % 3 == 0) throw std::logic_error("was known");
        return PieceResult{"done"};
      },
      known);
  for (std::size_t i = 0; i < kPieces; ++i) CHECK(result.finished[i] == (i % 3 == 0 ? "known" : "done"));
}

TEST_CASE("what a piece throws in any process is thrown by the first") {
  REQUIRE_THROWS_WITH(spread_over(GENERATE(1, 2, 4),
                                  [](std::int64_t piece, const std::stop_token&) -> PieceResult {
                                    if (piece == 17) throw std::runtime_error("seventeen is too many");
                                    return {square(piece)};
                                  }),
                      contains("seventeen is too many"));
}

TEST_CASE("asked to stop, what was finished until then is given, and the piece that was not apart from it") {
  std::stop_source stop;
  const SpreadResult result =
      runtime::spread_work(std::vector<std::optional<std::string>>(kPieces),
                           [&](std::int64_t piece, const std::stop_token& asked) {
                             if (piece == 5) stop.request_stop();
                             return PieceResult{square(piece), !asked.stop_requested()};
                           },
                           {.group = nullptr, .stop = stop.get_token(), .on_finished = {}, .warn = {}});
  CHECK(result.end == SpreadEnd::interrupted);
  CHECK(result.unfinished == std::vector<std::pair<std::int64_t, std::string>>{{5, square(5)}});
  for (std::size_t i = 0; i < kPieces; ++i) CHECK(result.finished[i].has_value() == (i < 5));
}

TEST_CASE("a journal gives back what was added to it, and forgets a line that was cut off") {
  const Folder folder;
  {
    runtime::WorkJournal journal = runtime::WorkJournal::begin(folder.file(), "the work", 4);
    journal.add(2, R"({"a":1.25})");
    journal.add(0, R"([1,2])");
  }
  const std::string whole = text_of(folder.file());
  std::ofstream(folder.file(), std::ios::app) << R"({"piece":1,"resu)";
  {
    runtime::WorkJournal journal = runtime::WorkJournal::resume(folder.file(), "the work", 4);
    CHECK(text_of(folder.file()) == whole);
    CHECK(journal.known()[0] == "[1,2]");
    CHECK_FALSE(journal.known()[1].has_value());
    CHECK(journal.known()[2] == R"({"a":1.25})");
    journal.add(1, "7");
  }
  CHECK(runtime::WorkJournal::resume(folder.file(), "the work", 4).known()[1] == "7");
}

TEST_CASE(
    "a journal of other work, a file that is none, and one that exists are each refused with a sentence") {
  const Folder folder;
  using runtime::WorkJournal;
  REQUIRE_THROWS_WITH(WorkJournal::resume(folder.file(), "the work", 4), contains("cannot be read"));
  WorkJournal::begin(folder.file(), "the work", 4);
  REQUIRE_THROWS_WITH(WorkJournal::begin(folder.file(), "the work", 4), contains("--resume"));
  REQUIRE_THROWS_WITH(WorkJournal::resume(folder.file(), "other work", 4),
                      contains("is the journal of another search"));
  REQUIRE_THROWS_WITH(WorkJournal::resume(folder.file(), "the work", 5), contains("pieces 4 instead of 5"));
  std::ofstream(folder.file()) << "a,b,c\n1,2,3\n";
  REQUIRE_THROWS_AS(WorkJournal::resume(folder.file(), "the work", 4), runtime::InputError);
}
