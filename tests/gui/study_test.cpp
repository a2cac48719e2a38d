// Studies: asked, superseded, cancelled, failed; and that nobody waits for them.
#include "app/gui/jobs/study.h"

#include <atomic>
#include <latch>
#include <stdexcept>

#include "tests/support/catch.h"

using namespace app::gui;

namespace {

using Tens = Study<int, int>;

template <class Request, class Result>
void settle(Study<Request, Result>& study) {
  study.wait();
  study.poll();
}

}  // namespace

TEST_CASE("nobody waits for a result: the old one stays until the new one is there") {
  std::latch release(1);
  Tens study(
      [&](int request, const auto&) {
        if (request == 2) release.wait();
        return 10 * request;
      },
      [] {});
  CHECK(study.result() == nullptr);
  study.ask(1);
  settle(study);
  REQUIRE(study.result());
  CHECK(*study.result() == 10);
  study.ask(2);
  CHECK(study.progress().running);  // at once: nobody asks twice in a frame because of what it does not know
  study.poll();
  CHECK(study.progress().running);
  CHECK(*study.result() == 10);
  CHECK(study.request() == 1);
  study.ask(3);  // supersedes what is being answered
  release.count_down();
  settle(study);
  CHECK(*study.result() == 30);
  CHECK(study.request() == 3);
  CHECK_FALSE(study.progress().running);
  CHECK_FALSE(study.progress().cancelled);
}

TEST_CASE("a study that fails is a message, the last result stays, and the next one takes the message away") {
  Tens study(
      [](int request, const auto&) {
        if (request < 0) throw std::invalid_argument("less than nothing");
        return 10 * request;
      },
      [] {});
  study.ask(1);
  study.wait();
  study.ask(-1);
  settle(study);
  CHECK(study.progress().failure == "less than nothing");
  CHECK(*study.result() == 10);
  CHECK(study.request() == 1);
  study.ask(2);
  settle(study);
  CHECK(study.progress().failure.empty());
  CHECK(*study.result() == 20);
}

TEST_CASE("work that is superseded or cancelled hears of it, what it has shown until then stays") {
  std::latch shown(1);
  Tens study(
      [&](int, const auto& course) {
        course.report(3, 8, "the third");
        course.show(1);
        shown.count_down();
        while (!course.stopped()) std::this_thread::yield();
        throw std::runtime_error("stopped");
        return 0;
      },
      [] {});
  study.ask(5);
  shown.wait();
  study.poll();
  CHECK(study.progress().running);
  CHECK(study.progress().done == 3);
  CHECK(study.progress().of == 8);
  CHECK(study.progress().part == "the third");
  study.cancel();
  settle(study);
  CHECK(study.progress().cancelled);
  CHECK_FALSE(study.progress().running);
  REQUIRE(study.result());
  CHECK(*study.result() == 1);
}

TEST_CASE("who follows a request in every frame asks once until it changes") {
  std::atomic<int> asked = 0, news = 0;
  Studies studies([&] { ++news; });
  auto& study = studies.add<int, int>([&](int request, const auto&) {
    ++asked;
    return request;
  });
  for (int frame = 0; frame < 5; ++frame) {
    study.follow(1);
    studies.wait();
    studies.poll();
  }
  CHECK(asked == 1);
  CHECK(news == 1);
  study.follow(2);
  studies.wait();
  CHECK(asked == 2);
}

TEST_CASE("a study that is given up while it works, or before it ever did, ends") {
  const auto endless = [](int, const auto& course) {
    while (!course.stopped()) std::this_thread::yield();
    return 0;
  };
  {
    const Tens idle(endless, [] {});
  }
  Tens busy(endless, [] {});
  busy.ask(1);
  Tens crowded(endless, [] {});
  for (int request = 0; request < 100; ++request) crowded.ask(request);
}
