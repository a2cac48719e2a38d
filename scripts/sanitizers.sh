# Sourced by ./test --asan and --tsan, which set `root`: what the sanitizers are told. Suppressions are of other people's
# libraries alone, each with its reason.
suppressions="$root/build/suppressions"
mkdir -p "$suppressions"
cat > "$suppressions/leaks" << 'END'
# OpenBLAS keeps its threads' buffers until the process ends.
leak:libopenblas
# Mesa and the loader of OpenGL keep their drivers' state.
leak:libGLX
leak:libEGL
leak:libgallium
# Open MPI keeps what it has read of the machine.
leak:libopen-pal
leak:libopen-rte
leak:libmpi
leak:libhwloc
leak:libpmix
leak:mca_
# What asprintf made for Open MPI: the C library has no frame pointers, so that the caller is not known. Nothing in this
# repository calls it.
leak:__vasprintf_internal
END
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
export LSAN_OPTIONS="suppressions=$suppressions/leaks:print_suppressions=0"
export UBSAN_OPTIONS=print_stacktrace=1
# No race is suppressed. What OpenBLAS, Mesa and Open MPI do inside is not instrumented, and not looked at; in which order
# OpenMP runs its regions, tests/support/openmp_order.cpp says.
export TSAN_OPTIONS=ignore_noninstrumented_modules=1
