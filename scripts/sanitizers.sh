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
END
cat > "$suppressions/races" << 'END'
# GCC's OpenMP is not built for ThreadSanitizer, which does not see the order that its barriers make.
called_from_lib:libgomp.so
called_from_lib:libopenblas.so
END
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
export LSAN_OPTIONS="suppressions=$suppressions/leaks:print_suppressions=0"
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS="suppressions=$suppressions/races:ignore_noninstrumented_modules=1"
