# SPDX-License-Identifier: Apache-2.0
# cmake -DOUTPUT=x.cc -DHEADER=module/page.h -DNAMESPACE=a::b "-DFILES=name=path|name=path" -P embed.cmake: a source file with a
# function `std::string_view name()` for the bytes of each file.
set(text "// Written by cmake/embed.cmake.\n#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n")
string(REPLACE "|" ";" pairs "${FILES}")
foreach(pair IN LISTS pairs)
  string(REGEX MATCH "^([^=]+)=(.*)$" _ "${pair}")
  set(name "${CMAKE_MATCH_1}")
  file(READ "${CMAKE_MATCH_2}" hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND text "namespace {\nconstexpr unsigned char k_${name}[] = {${bytes}};\n}\n"
    "std::string_view ${name}() {\n  return {reinterpret_cast<const char*>(k_${name}), sizeof(k_${name})};\n}\n")
endforeach()
string(APPEND text "}  // namespace ${NAMESPACE}\n")
file(WRITE "${OUTPUT}" "${text}")
