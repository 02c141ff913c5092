# SPDX-License-Identifier: Apache-2.0
# cmake --install: bin/pentatron, lib/libpentatron.so (and the CUDA half), the public headers, and a package that
# find_package(Pentatron) reads. The installed files find libtorch where the build found it, or where -DPENTATRON_TORCH_ROOT
# of the user's own build says.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Pentatron")
set_target_properties(pentatron PROPERTIES INSTALL_RPATH "$ORIGIN;${PENTATRON_TORCH_ROOT}/lib")
install(TARGETS pentatron LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(TARGET pentatron_cuda)
  set_target_properties(pentatron_cuda PROPERTIES INSTALL_RPATH "$ORIGIN;${PENTATRON_TORCH_ROOT}/lib")
  install(TARGETS pentatron_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
if(TARGET pentatron_program)
  set_target_properties(pentatron_program PROPERTIES
    INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};${PENTATRON_TORCH_ROOT}/lib")
  install(TARGETS pentatron_program RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
install(DIRECTORY "${CMAKE_SOURCE_DIR}/pentatron" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h"
  PATTERN "*test*" EXCLUDE
  PATTERN "gloo_stubs" EXCLUDE
  PATTERN "testdata" EXCLUDE
  PATTERN "kernels" EXCLUDE)
configure_package_config_file("${CMAKE_SOURCE_DIR}/cmake/PentatronConfig.cmake.in"
  "${CMAKE_BINARY_DIR}/PentatronConfig.cmake" INSTALL_DESTINATION "${package_dir}")
# Before 1.0 any minor version may change the headers.
write_basic_package_version_file("${CMAKE_BINARY_DIR}/PentatronConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/PentatronConfig.cmake" "${CMAKE_BINARY_DIR}/PentatronConfigVersion.cmake"
  DESTINATION "${package_dir}")
