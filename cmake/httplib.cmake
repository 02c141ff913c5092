# SPDX-License-Identifier: Apache-2.0
# Debian builds cpp-httplib as a library with TLS; without this definition its classes would have another layout.
if(NOT TARGET pentatron_httplib)
  add_library(pentatron_httplib INTERFACE)
  target_compile_definitions(pentatron_httplib INTERFACE CPPHTTPLIB_OPENSSL_SUPPORT)
  target_link_libraries(pentatron_httplib INTERFACE cpp-httplib)
endif()
