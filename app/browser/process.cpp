// A page of a browser is no process: its streams are open, and no library ends it.
#include "app/end_early.h"
#include "app/process_start.h"

namespace app {

void settle_process() {}
void main_has_ended() noexcept {}

}  // namespace app
