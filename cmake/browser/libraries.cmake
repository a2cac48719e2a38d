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

# nlohmann/json is headers alone, and seen by a link: the system's own folder would bring its C library along.
set(headers "${CMAKE_BINARY_DIR}/include/of_system")
file(MAKE_DIRECTORY "${headers}")
find_path(nlohmann_json_headers nlohmann/json.hpp PATHS /usr/include REQUIRED)
file(CREATE_LINK "${nlohmann_json_headers}/nlohmann" "${headers}/nlohmann" SYMBOLIC)
add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED GLOBAL)
target_include_directories(nlohmann_json::nlohmann_json SYSTEM INTERFACE "${headers}")
# find_package() takes this in place of the system's.
file(WRITE "${CMAKE_FIND_PACKAGE_REDIRECTS_DIR}/nlohmann_jsonConfig.cmake" "")
file(WRITE "${CMAKE_FIND_PACKAGE_REDIRECTS_DIR}/nlohmann_jsonConfigVersion.cmake" "set(PACKAGE_VERSION_COMPATIBLE TRUE)\n")

# ridgepoint_browser_program(TARGET files...): how a program is linked; it finds the files where they are named, or behind
# "@".
function(ridgepoint_browser_program target)
  set_target_properties(${target} PROPERTIES SUFFIX .js)
  target_sources(${target} PRIVATE "${CMAKE_SOURCE_DIR}/cmake/browser/main.c")
  target_link_libraries(${target} PRIVATE libcxx)
  target_link_options(${target} PRIVATE -O2 -fwasm-exceptions -lc++abi-except -lunwind-except -sTOTAL_STACK=4MB
    -sFORCE_FILESYSTEM)
  foreach(file IN LISTS ARGN)
    target_link_options(${target} PRIVATE "SHELL:--preload-file ${file}")
  endforeach()
  file(GLOB_RECURSE preset_files CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/presets/*")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${preset_files}")
endfunction()
