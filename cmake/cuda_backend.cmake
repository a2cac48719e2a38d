# The CUDA backend is built where a CUDA compiler is: a shared object that the program loads at start, if it can.
# RIDGEPOINT_HAS_CUDA says so. ridgepoint_cuda_options(TARGET): what its CUDA sources are compiled with.
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  set(RIDGEPOINT_HAS_CUDA OFF)
  return()
endif()
# A100; H100 and H200; the latter's PTX too, which drivers compile for later GPUs.
set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
enable_language(CUDA)
# CMake 3.25 does not know that CUDA 12 and later compile C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
find_package(CUDAToolkit QUIET)
if(NOT TARGET CUDA::cublasLt)
  message(STATUS "CUDA's compiler is here, cuBLASLt is not: no CUDA backend")
  set(RIDGEPOINT_HAS_CUDA OFF)
  return()
endif()
set(RIDGEPOINT_HAS_CUDA ON)

# What the assembler says of every kernel's registers and spills is kept beside its object, for a test to read.
set(cuda_launcher "${CMAKE_SOURCE_DIR}/cmake/keep_assembler_report")
if(RIDGEPOINT_CCACHE)
  list(APPEND cuda_launcher "${RIDGEPOINT_CCACHE}")
endif()
set(CMAKE_CUDA_COMPILER_LAUNCHER "${cuda_launcher}")

function(ridgepoint_cuda_options target)
  # nvcc hands members to the host's compiler as T (Part::*member), which GCC finds more parentheses than needed.
  set(host_warnings -Wall,-Wextra,-Wshadow,-Wconversion,-Wno-sign-conversion,-Wno-unknown-pragmas,-Wno-parentheses)
  if(RIDGEPOINT_WERROR)
    string(APPEND host_warnings ",-Werror")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
  endif()
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xptxas=-v;-Xcompiler=${host_warnings}>)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()
