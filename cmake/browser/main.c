// LLVM 19 calls a main() with arguments by the first of these names, Emscripten 3.1 by the second.
int __main_argc_argv(int argc, char** argv);
int start(int argc, char** argv) __asm__("main");

int start(int argc, char** argv) {
  return __main_argc_argv(argc, argv);
}
