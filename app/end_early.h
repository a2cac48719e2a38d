// Ends the program where no command can report an error: memory runs out before main() or in a function that
// may not throw, or a library calls exit() itself (GCC's OpenMP does so without memory or threads). The
// program then ends with a sentence and the exit code of a device error. This is prepared before any library
// starts.
#pragma once

namespace app {

// Call at the end of main(): a later exit() is the normal end of the program.
void main_has_ended() noexcept;

}  // namespace app
