// How the kernels' threads wait for each other.
#pragma once

namespace runtime {

// The first call of a program's main(). GNU's OpenMP reads its settings before main() runs and lets a waiting
// thread spin for milliseconds; where other programs want the cores too, every kernel then waits for a time
// slice of the scheduler (measured: a training step of a tiny model 4 ms with short spinning, 900 ms without,
// on two cores with four times as many runnable threads). So the program replaces itself by itself with
// GOMP_SPINCOUNT set; where the user has set that or OMP_WAIT_POLICY, it does nothing. Should the system
// refuse, it goes on as it is.
void restart_with_short_waiting(char** argv);

}  // namespace runtime
