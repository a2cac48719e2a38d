#include "app/cli/interrupt.h"

namespace app::cli {

// A page has no signals and no thread to wait for them: a run is cancelled by ending its worker.
InterruptSignals::InterruptSignals() = default;
InterruptSignals::~InterruptSignals() = default;

}  // namespace app::cli
