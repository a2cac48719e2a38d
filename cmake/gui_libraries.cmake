# ridgepoint::gui_libraries: Dear ImGui (docking), its GLFW, OpenGL 3 and null backends, ImPlot, GLFW and the headers of
# portable-file-dialogs and stb_image_write, built from the sources below RIDGEPOINT_THIRD_PARTY.
# ridgepoint::gui_libraries_with_test_engine (only with RIDGEPOINT_IMGUI_TEST_ENGINE): the same with ImGui Test Engine,
# for test programs alone: its licence is not an OSI one.
set(RIDGEPOINT_IMGUI_BUNDLE "${RIDGEPOINT_THIRD_PARTY}/imgui-bundle-1.92.900/external")
if(NOT EXISTS "${RIDGEPOINT_IMGUI_BUNDLE}/imgui/imgui/imgui.h")
  message(FATAL_ERROR "The GUI libraries are not in ${RIDGEPOINT_THIRD_PARTY}: run ./run, which fetches them, "
    "or set RIDGEPOINT_THIRD_PARTY to a folder that holds imgui-bundle-1.92.900/external.")
endif()
set(imgui "${RIDGEPOINT_IMGUI_BUNDLE}/imgui/imgui")
set(implot "${RIDGEPOINT_IMGUI_BUNDLE}/implot/implot")
set(glfw "${RIDGEPOINT_IMGUI_BUNDLE}/glfw/glfw")

if(NOT RIDGEPOINT_BROWSER)  # the page is the window there
  # GLFW loads libX11, libwayland-client and libGL when it starts: it needs their headers here and nothing at link time.
  find_program(WAYLAND_SCANNER_EXECUTABLE wayland-scanner)
  find_package(PkgConfig QUIET)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(WAYLAND QUIET wayland-client wayland-cursor wayland-egl xkbcommon)
  endif()
  if(WAYLAND_SCANNER_EXECUTABLE AND WAYLAND_FOUND)
    set(GLFW_BUILD_WAYLAND ON)
  else()
    set(GLFW_BUILD_WAYLAND OFF)
    message(STATUS "Wayland's development files are missing: the window will use X11 only")
  endif()
  set(GLFW_LIBRARY_TYPE STATIC)
  set(GLFW_BUILD_DOCS OFF)
  set(GLFW_BUILD_EXAMPLES OFF)
  set(GLFW_BUILD_TESTS OFF)
  set(GLFW_INSTALL OFF)
  add_subdirectory("${glfw}" "${CMAKE_BINARY_DIR}/third_party/glfw" EXCLUDE_FROM_ALL SYSTEM)
endif()

# The interface is drawn every frame in debug and sanitizer builds too: the libraries are optimised in all of them.
# The sanitizers watch our own code; in these libraries they would take the compiler four minutes.
function(ridgepoint_third_party_options target)
  target_compile_options(${target} PRIVATE -O2 -w -fno-sanitize=all)
  set_target_properties(${target} PROPERTIES EXPORT_COMPILE_COMMANDS OFF)
endfunction()
if(TARGET glfw)
  ridgepoint_third_party_options(glfw)
endif()

# ridgepoint_gui_library(NAME): a whole copy of ImGui and ImPlot, since the test engine changes how ImGui is compiled.
function(ridgepoint_gui_library name)
  add_library(${name} STATIC EXCLUDE_FROM_ALL
    "${imgui}/imgui.cpp"
    "${imgui}/imgui_draw.cpp"
    "${imgui}/imgui_stacklayout.cpp"
    "${imgui}/imgui_tables.cpp"
    "${imgui}/imgui_widgets.cpp"
    "${imgui}/backends/imgui_impl_null.cpp"
    "${imgui}/backends/imgui_impl_opengl3.cpp"
    "${imgui}/misc/cpp/imgui_stdlib.cpp"
    "${implot}/implot.cpp"
    "${implot}/implot_items.cpp")
  add_library(ridgepoint::${name} ALIAS ${name})
  target_include_directories(${name} SYSTEM PUBLIC
    "${imgui}" "${imgui}/backends" "${imgui}/misc/cpp"
    "${implot}"
    "${glfw}/deps"  # stb_image_write.h
    "${RIDGEPOINT_IMGUI_BUNDLE}/portable_file_dialogs/portable_file_dialogs")
  # ImPlot instantiates its plots for every numeric type it is told of: its own list of ten takes three times as long.
  target_compile_definitions(${name}
    PUBLIC IMGUI_DISABLE_DEMO_WINDOWS
    PRIVATE "IMPLOT_CUSTOM_NUMERIC_TYPES=(float)(double)(int)")
  if(TARGET glfw)
    target_sources(${name} PRIVATE "${imgui}/backends/imgui_impl_glfw.cpp")
    target_link_libraries(${name} PUBLIC glfw)
  else()
    target_compile_definitions(${name} PUBLIC IMGUI_IMPL_OPENGL_ES3)  # WebGL 2
  endif()
  target_link_libraries(${name} PUBLIC ${CMAKE_DL_LIBS})
  ridgepoint_third_party_options(${name})
endfunction()

ridgepoint_gui_library(gui_libraries)

option(RIDGEPOINT_IMGUI_TEST_ENGINE "Build ImGui with its test engine, for tests that drive the interface" OFF)
if(RIDGEPOINT_IMGUI_TEST_ENGINE)
  set(test_engine "${RIDGEPOINT_IMGUI_BUNDLE}/imgui_test_engine/imgui_test_engine")
  file(GLOB test_engine_sources "${test_engine}/imgui_test_engine/*.cpp")
  list(FILTER test_engine_sources EXCLUDE REGEX "python_gil")
  ridgepoint_gui_library(gui_libraries_with_test_engine)
  target_sources(gui_libraries_with_test_engine PRIVATE ${test_engine_sources})
  target_include_directories(gui_libraries_with_test_engine SYSTEM PUBLIC
    "${test_engine}" "${test_engine}/imgui_test_engine")
  target_compile_definitions(gui_libraries_with_test_engine
    PUBLIC IMGUI_ENABLE_TEST_ENGINE IMGUI_TEST_ENGINE_ENABLE_COROUTINE_STDTHREAD_IMPL=1)
endif()
