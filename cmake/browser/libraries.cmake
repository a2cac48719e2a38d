# What the browser edition has in place of a system's libraries.
#
# libc++ 20: built from the sources below RIDGEPOINT_THIRD_PARTY, which scripts/browser fetches. Every target sees its
# headers, every program links it.
set(libcxx "${RIDGEPOINT_THIRD_PARTY}/libcxx-20.1.2")
if(NOT EXISTS "${libcxx}/include/__config")
  message(FATAL_ERROR "libc++ 20 is not in ${RIDGEPOINT_THIRD_PARTY}: scripts/browser fetches it.")
endif()
add_compile_options(
  "$<$<COMPILE_LANGUAGE:CXX>:-nostdinc++;-fexperimental-library;SHELL:-include ${CMAKE_SOURCE_DIR}/cmake/browser/libcxx_configuration.h>"
  "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-isystem ${libcxx}/include;SHELL:-isystem ${libcxx}/abi>")

file(GLOB libcxx_sources "${libcxx}/src/*.cpp" "${libcxx}/src/filesystem/*.cpp" "${libcxx}/src/ryu/*.cpp")
list(APPEND libcxx_sources "${libcxx}/src/experimental/keep.cpp")
list(FILTER libcxx_sources EXCLUDE REGEX "/src/new\\.cpp$")  # libc++abi has these operators
add_library(libcxx STATIC EXCLUDE_FROM_ALL ${libcxx_sources})
target_include_directories(libcxx PRIVATE "${libcxx}/src" "${libcxx}/libc")
target_compile_definitions(libcxx PRIVATE _LIBCPP_BUILDING_LIBRARY LIBCXX_BUILDING_LIBCXXABI LIBC_NAMESPACE=__llvm_libc NDEBUG)
target_compile_options(libcxx PRIVATE -w -Os)
set_target_properties(libcxx PROPERTIES CXX_STANDARD 23 EXPORT_COMPILE_COMMANDS OFF)

# Libraries that are headers alone, seen by links: the system's own folder would bring its C library along.
set(headers "${CMAKE_BINARY_DIR}/include/of_system")
file(MAKE_DIRECTORY "${headers}")
foreach(header nlohmann/json.hpp CLI/CLI.hpp fmt/format.h)
  string(MAKE_C_IDENTIFIER "${header}" known)
  find_path(${known} ${header} PATHS /usr/include REQUIRED)
  cmake_path(GET header PARENT_PATH folder)
  file(CREATE_LINK "${${known}}/${folder}" "${headers}/${folder}" SYMBOLIC)
endforeach()
foreach(target nlohmann_json::nlohmann_json CLI11::CLI11 fmt::fmt OpenMP::OpenMP_CXX)
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${target} SYSTEM INTERFACE "${headers}")
endforeach()
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
target_include_directories(OpenMP::OpenMP_CXX SYSTEM INTERFACE "${CMAKE_CURRENT_LIST_DIR}/include")  # omp.h, cblas.h
target_compile_options(OpenMP::OpenMP_CXX INTERFACE -Wno-unknown-pragmas)
# find_package() takes these in place of the system's.
foreach(package nlohmann_json CLI11 fmt OpenMP OpenBLAS)
  file(WRITE "${CMAKE_FIND_PACKAGE_REDIRECTS_DIR}/${package}Config.cmake" "")
  file(WRITE "${CMAKE_FIND_PACKAGE_REDIRECTS_DIR}/${package}ConfigVersion.cmake" "set(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
endforeach()

# Headers that most files include, parsed once: half of what Clang needs for a file.
add_library(browser_headers OBJECT EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/no_code.cpp")
target_link_libraries(browser_headers PRIVATE nlohmann_json::nlohmann_json fmt::fmt)
target_precompile_headers(browser_headers PRIVATE <algorithm> <array> <charconv> <chrono> <cmath> <cstdint> <filesystem>
  <fstream> <functional> <map> <memory> <mutex> <optional> <set> <span> <sstream> <stdexcept> <stop_token> <string>
  <string_view> <thread> <tuple> <unordered_map> <utility> <variant> <vector> <fmt/format.h> <nlohmann/json.hpp>)

add_library(browser_main OBJECT EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/main.c" "${CMAKE_CURRENT_LIST_DIR}/system.c")

# ridgepoint_browser_program(TARGET files...): how a program is linked; it finds the files where they are named, or behind
# "@".
function(ridgepoint_browser_program target)
  set_target_properties(${target} PROPERTIES SUFFIX .js)
  target_link_libraries(${target} PRIVATE browser_main libcxx)
  target_link_options(${target} PRIVATE -O2 -fwasm-exceptions -lc++abi-except -lunwind-except -sTOTAL_STACK=4MB
    -sFORCE_FILESYSTEM)
  foreach(file IN LISTS ARGN)
    target_link_options(${target} PRIVATE "SHELL:--preload-file ${file}")
  endforeach()
  file(GLOB_RECURSE preset_files CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/presets/*")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${preset_files}")
endfunction()
