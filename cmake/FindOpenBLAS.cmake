# OpenBLAS_LIBRARY and OpenBLAS_INCLUDE_DIR: OpenBLAS with its cblas.h, in the variant that shares OpenMP's threads with
# our kernels.
# Beside OpenMP code the pthread variant is 1.8 times slower, and wins Debian's alternatives when both are installed;
# so the library is taken from its own folder, by its whole path (kernels/blas.cpp).
# Debian and Ubuntu keep the variants in folders (openblas-openmp), Fedora and openSUSE name them (libopenblaso).
find_path(OpenBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas-openmp openblas)
find_library(OpenBLAS_LIBRARY NAMES openblaso openblas PATH_SUFFIXES openblas-openmp)
mark_as_advanced(OpenBLAS_INCLUDE_DIR OpenBLAS_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenBLAS REQUIRED_VARS OpenBLAS_LIBRARY OpenBLAS_INCLUDE_DIR)

if(OpenBLAS_FOUND AND NOT OpenBLAS_LIBRARY MATCHES "openmp|openblaso")
  message(STATUS "OpenBLAS: ${OpenBLAS_LIBRARY} may not be the OpenMP variant, which is up to 1.8 times faster here")
endif()
