// For the headers that are parsed once (libraries.cmake).
