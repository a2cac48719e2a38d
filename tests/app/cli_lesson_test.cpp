// ridgepoint lesson on a class's own folder.
#include <filesystem>
#include <fstream>

#include "tests/app/program.h"
#include "tests/support/catch.h"

using program::Folder;
using program::Result;
using program::run;

namespace {

std::string lesson_of(const std::string& title, const std::string& lines = "Fine.") {
  return "---\ntitle: " + title +
         "\nchapter: 1 Ours\nminutes: 1\nsystems: 2\nscenario: train-llama-3.1-8b-h100\n---\n\n## One\n\n" +
         lines + "\n";
}

}  // namespace

TEST_CASE("a class's folder of lessons stands beside ours, and its file in place of ours of the same name") {
  const Folder folder;
  folder.write("ours.md", lesson_of("A lesson of the class"));
  folder.write("complexity.md", lesson_of("The class's complexity"));
  const Result list = run({"lesson", "--lessons", folder.path(".")});
  CAPTURE(list.err);
  CHECK(list.exit_code == 0);
  CHECK_THAT(list.out, contains("A lesson of the class"));
  CHECK_THAT(list.out, contains("The class's complexity"));
  CHECK_THAT(list.out, !contains("How time and memory grow"));
  CHECK_THAT(list.out, contains("cost-of-a-step"));
  CHECK_THAT(run({"lesson", "ours", "--lessons", folder.path(".")}).out, contains("A lesson of the class"));
}

TEST_CASE(
    "the list has lessons as a lecture goes: what a step costs before how it grows, caches before batches") {
  const std::string list = run({"lesson"}).out;
  for (const auto& [earlier, later] : {std::pair("cost-of-a-step", "complexity"),
                                       {"complexity", "memory-of-training"},
                                       {"roofline", "flash-attention"},
                                       {"generation", "batching"},
                                       {"tensor-parallel", "pipeline"},
                                       {"pipeline", "experts"}}) {
    CAPTURE(earlier, later);
    CHECK(list.find(earlier) < list.find(later));
    CHECK(list.find(later) != std::string::npos);
  }
}

TEST_CASE("a wrong lesson of a class is named with its line and what would be accepted, beside the others") {
  const Folder folder;
  folder.write("good.md", lesson_of("A good one"));
  folder.write("wrong.md", lesson_of("A wrong one", ":pannel memory"));
  const Result list = run({"lesson", "--lessons", folder.path(".")});
  CHECK(list.exit_code == 4);
  CHECK_THAT(list.out, contains("A good one"));
  CHECK_THAT(list.err, contains("wrong.md:11: \":pannel\" is none of :answer"));
  const Result check = run({"lesson", "check", "--lessons", folder.path(".")});
  CHECK(check.exit_code == 4);
  CHECK_THAT(check.out, contains("wrong.md:11"));
  CHECK_THAT(check.out, contains("2 lessons, 1 step played from first to last: 1 has problems"));
  const Result one = run({"lesson", "check", folder.path("good.md")});
  CHECK_THAT(one.out, contains("1 lesson, 1 step played from first to last: nothing is wrong"));
}

TEST_CASE("a folder of lessons that is none is refused with what would be one, also by the desktop") {
  const Folder folder;
  folder.write("README.md", "Nothing of a lesson.");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"lesson", "--lessons"}, {"--lessons"}}) {
    const auto with = [&](const std::string& path) {
      std::vector<std::string> words = command;
      words.push_back(path);
      return run(words);
    };
    const Result nowhere = with(folder.path("nowhere"));
    CHECK(nowhere.exit_code == 4);
    CHECK_THAT(nowhere.err, contains("nowhere: is no folder; one of lessons, NAME.md each, would be"));
    CHECK_THAT(with(folder.path(".")).err, contains("has no lessons, which are files NAME.md"));
  }
}

TEST_CASE(
    "a handout is printed as PDF by a browser, and where none is installed a sentence says what to do") {
  const Folder folder;
  const std::string pdf = folder.path("handout.pdf");
  const Result none = run({"lesson", "tokens", "--handout", pdf}, {"env", "PATH=" + folder.path(".")});
  CHECK(none.exit_code == 5);
  CHECK_THAT(none.err, contains("none is installed: install chromium, or write the handout as .html"));
  CHECK_FALSE(std::filesystem::exists(pdf));
  if (!std::filesystem::exists("/usr/bin/chromium")) SKIP_WITHOUT("Chromium");
  const Result printed = run({"lesson", "tokens", "--handout", pdf});
  CAPTURE(printed.err);
  CHECK(printed.exit_code == 0);
  std::ifstream file(pdf, std::ios::binary);
  std::string begin(5, '\0');
  CHECK(file.read(begin.data(), 5));
  CHECK(begin == "%PDF-");
}
