#include "app/gui/browser/between_frames.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace app::gui {
namespace {

struct Waiting {
  const void* who;
  std::function<void()> call;
};

std::deque<Waiting>& waiting() {
  static std::deque<Waiting> calls;
  return calls;
}

auto waiting_for(const void* who) {
  return std::find_if(waiting().begin(), waiting().end(),
                      [who](const Waiting& one) { return one.who == who; });
}

}  // namespace

void call_between_frames(const void* who, std::function<void()> call) {
  const auto found = waiting_for(who);
  if (found == waiting().end())
    waiting().push_back({who, std::move(call)});
  else
    found->call = std::move(call);
}

void forget_between_frames(const void* who) {
  if (const auto found = waiting_for(who); found != waiting().end()) waiting().erase(found);
}

bool call_now(const void* who) {
  const auto found = waiting_for(who);
  if (found == waiting().end()) return false;
  const std::function<void()> call = std::move(found->call);
  waiting().erase(found);
  call();
  return true;
}

bool call_next() {
  return !waiting().empty() && call_now(waiting().front().who);
}

}  // namespace app::gui
