# Writes a source file with a hash of the files in FILES (separated by |), as the function FUNCTION of namespace LIBRARY, which
# LIBRARY/code.h declares. Run as a script when one of them changed.
set(all "")
string(REPLACE "|" ";" files "${FILES}")
foreach(file ${files})
  file(SHA256 "${file}" hash)
  string(APPEND all "${hash}")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING "${hash}" 0 12 hash)
file(WRITE "${OUTPUT}" "#include \"${LIBRARY}/code.h\"\n\nnamespace ${LIBRARY} {\nstd::string_view ${FUNCTION}() { return \"${hash}\"; }\n}\n")
