// What a page does in place of threads: calls that wait until a frame is drawn.
#pragma once
#include <functional>

namespace app::gui {

// In place of what waits for `who`, if anything does.
void call_between_frames(const void* who, std::function<void()> call);
// What waits for `who` is left out.
void forget_between_frames(const void* who);
// At once what waits for `who`; false: nothing does.
bool call_now(const void* who);
// The call that has waited longest; false: none waits.
bool call_next();

}  // namespace app::gui
