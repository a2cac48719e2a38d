// A browser page has no threads: calls wait here until a frame is drawn.
#pragma once
#include <functional>

namespace app::gui {

// Queues a call for `who`, in place of the one that waits for it, if any.
void call_between_frames(const void* who, std::function<void()> call);
// Drops the call that waits for `who`.
void forget_between_frames(const void* who);
// Makes the call that waits for `who` at once; false: none waits.
bool call_now(const void* who);
// Makes the call that has waited longest; false: none waits.
bool call_next();

}  // namespace app::gui
