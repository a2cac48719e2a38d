# WebAssembly for browsers and Node. Emscripten links and brings the C library; its compiler and its C++
# library are those of LLVM 13 and 14, which lack much of C++20. So LLVM 19's Clang compiles, against libc++ 20
# (cmake/browser/libraries.cmake). No threads: they would ask the file server for special headers.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(RIDGEPOINT_BROWSER ON)
find_program(RIDGEPOINT_EMCC emcc REQUIRED DOC "Emscripten's driver: Debian's package emscripten")
find_program(CMAKE_C_COMPILER NAMES clang-19 REQUIRED DOC "Debian's package clang-19")
find_program(CMAKE_CXX_COMPILER NAMES clang++-19 REQUIRED DOC "Debian's package clang-19")
find_program(CMAKE_AR NAMES llvm-ar-19 llvm-ar REQUIRED)
find_program(CMAKE_RANLIB NAMES llvm-ranlib-19 llvm-ranlib REQUIRED)
set(RIDGEPOINT_EMSCRIPTEN /usr/share/emscripten CACHE PATH "Where Emscripten lies")
set(CMAKE_SYSROOT "${RIDGEPOINT_EMSCRIPTEN}/cache/sysroot")

foreach(language C CXX)
  set(CMAKE_${language}_COMPILER_TARGET wasm32-unknown-emscripten)
  # What the linker of LLVM 14 knows, and every browser since 2022. Exceptions are the browser's own.
  string(JOIN " " CMAKE_${language}_FLAGS_INIT -mcpu=mvp -msign-ext -mmutable-globals -mbulk-memory
    -mnontrapping-fptoint -msimd128 -fwasm-exceptions -DEMSCRIPTEN -isystem "${CMAKE_SYSROOT}/include/compat")
  # Debian keeps the modules of Node that Emscripten uses where another Node does not look.
  set(CMAKE_${language}_LINK_EXECUTABLE
    "\"${CMAKE_COMMAND}\" -E env NODE_PATH=/usr/share/nodejs ${RIDGEPOINT_EMCC} <LINK_FLAGS> <OBJECTS> -o <TARGET> <LINK_LIBRARIES>")
endforeach()
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
foreach(kind PROGRAM LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} NEVER)
endforeach()
