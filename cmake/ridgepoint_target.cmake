# ridgepoint_library(NAME): the static library of one folder, from every .cpp below it.
# Includes are written from the folder's name ("sim/units.h"); to make that work without letting a folder see its
# neighbours, each target exports a directory that holds one link, to itself.
function(ridgepoint_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion)
  # GCC takes variables of code that its sanitizers have instrumented for uninitialised (bug 105562), in <regex> too.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
  endif()
  if(RIDGEPOINT_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(TARGET browser_headers AND NOT target STREQUAL "kernels")  # whose options are others
    target_precompile_headers(${target} REUSE_FROM browser_headers)
  endif()
endfunction()

function(ridgepoint_library name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  add_library(${name} STATIC ${sources})
  add_library(ridgepoint::${name} ALIAS ${name})
  set(include_root "${CMAKE_BINARY_DIR}/include/${name}")
  file(MAKE_DIRECTORY "${include_root}")
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}" "${include_root}/${name}" SYMBOLIC)
  target_include_directories(${name} PUBLIC "${include_root}")
  ridgepoint_options(${name})
endfunction()

# ridgepoint_code_hash(LIBRARY FUNCTION FILES...): LIBRARY::FUNCTION(), declared in LIBRARY/code.h, is a hash of the files' code.
# Calibrations hold for the code that they measured.
function(ridgepoint_code_hash library function)
  set(output "${CMAKE_CURRENT_BINARY_DIR}/${function}.cpp")
  string(JOIN "|" files ${ARGN})
  add_custom_command(OUTPUT "${output}" VERBATIM DEPENDS ${ARGN} "${CMAKE_SOURCE_DIR}/cmake/code_hash.cmake"
    COMMAND "${CMAKE_COMMAND}" "-DLIBRARY=${library}" "-DFILES=${files}" "-DFUNCTION=${function}" "-DOUTPUT=${output}"
            -P "${CMAKE_SOURCE_DIR}/cmake/code_hash.cmake")
  target_sources(${library} PRIVATE "${output}")
endfunction()
