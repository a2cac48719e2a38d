// What libraries read from the environment when they are loaded.
#pragma once

namespace runtime {

// The first call of a program's main(), while it has one thread: the instructions that OpenBLAS multiplies by
// (kernels/blas.h), and how the kernels' threads wait for each other.
//
// GNU's OpenMP reads its settings before main() runs and lets a waiting thread spin for milliseconds; where
// other programs want the cores too, every kernel then waits for a time slice of the scheduler (measured: a
// training step of a tiny model 4 ms with short spinning, 900 ms without, on two cores with four times as many
// runnable threads). So the program replaces itself by itself with GOMP_SPINCOUNT set; where the user has set
// that or OMP_WAIT_POLICY, it does not. Should the system refuse, it goes on as it is.
void set_up_libraries(char** argv);

}  // namespace runtime
