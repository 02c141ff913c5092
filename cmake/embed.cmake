# SPDX-License-Identifier: Apache-2.0
# cmake -DOUTPUT=x.cc -DHEADER=module/page.h -DNAMESPACE=a::b "-DFILES=name=path|name=path" -P embed.cmake: a source file with a
# function `std::string_view name()` for the bytes of each file. With -DTABLE=function also `function()`, a span of the EmbeddedFile
# {file name, bytes} that HEADER declares, in the order of FILES.
set(text "// Written by cmake/embed.cmake.\n#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n")
string(REPLACE "|" ";" pairs "${FILES}")
foreach(pair IN LISTS pairs)
  string(REGEX MATCH "^([^=]+)=(.*)$" _ "${pair}")
  get_filename_component(file "${CMAKE_MATCH_2}" NAME)
  set(name "${CMAKE_MATCH_1}")
  file(READ "${CMAKE_MATCH_2}" hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND text "namespace {\nconstexpr unsigned char k_${name}[] = {${bytes}};\n}\n"
    "std::string_view ${name}() {\n  return {reinterpret_cast<const char*>(k_${name}), sizeof(k_${name})};\n}\n")
  string(APPEND rows "    {\"${file}\", ${name}()},\n")
endforeach()
if(DEFINED TABLE)
  string(APPEND text "std::span<const EmbeddedFile> ${TABLE}() {\n  static const EmbeddedFile kFiles[] = {\n${rows}  };\n  return kFiles;\n}\n")
endif()
string(APPEND text "}  // namespace ${NAMESPACE}\n")
file(WRITE "${OUTPUT}" "${text}")
