# Writes a source file with a hash of the code in FILES (separated by |), as the function FUNCTION of namespace LIBRARY, which
# LIBRARY/code.h declares. Run as a script when one of them changed. Comments and white space do not count: a calibration that is
# tied to the hash stays valid when they alone change.
set(all "")
string(REPLACE "|" ";" files "${FILES}")
foreach(file ${files})
  file(READ "${file}" code)
  string(REGEX REPLACE "//[^\n]*" "" code "${code}")
  string(REGEX REPLACE "[ \t\n]+" " " code "${code}")
  string(SHA256 hash "${code}")
  string(APPEND all "${hash}")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING "${hash}" 0 12 hash)
file(WRITE "${OUTPUT}" "#include \"${LIBRARY}/code.h\"\n\nnamespace ${LIBRARY} {\nstd::string_view ${FUNCTION}() { return \"${hash}\"; }\n}\n")
