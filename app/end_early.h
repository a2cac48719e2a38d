// What ends the program where no command can answer for it: memory that runs out before main() or in a
// function that may not throw, and a library that calls exit() itself (GCC's OpenMP does so without memory or
// threads). All end with a sentence and the exit code of a device error. It is prepared before any library
// starts.
#pragma once

namespace app {

// From here on exit() is main()'s own.
void main_has_ended() noexcept;

}  // namespace app
