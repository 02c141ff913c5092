# SPDX-License-Identifier: Apache-2.0
# cmake --install: bin/pentatron, lib/libpentatron.so, libpentatron_monitor.so, libpentatron_http.so (and the CUDA library), the public headers, and a
# package that find_package(Pentatron) reads. The prefix may be moved, and works when the clone is gone: libtorch is copied into
# lib/pentatron/site. With PENTATRON_INSTALL_TORCH=OFF that is a link to the build's own instead, to be kept or pointed elsewhere.
option(PENTATRON_INSTALL_TORCH "Copy libtorch into the installed tree; OFF: link to where the build found it" ON)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Pentatron")
# Folder of the unpacked wheels (torch, and nvidia's beside it) as seen from the libraries, in the build folder too.
set(_site "pentatron/site")
get_filename_component(_site_root "${PENTATRON_TORCH_ROOT}" DIRECTORY)
file(MAKE_DIRECTORY "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/pentatron")
file(CREATE_LINK "${_site_root}" "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/${_site}" SYMBOLIC)

# What is installed carries one RUNPATH, in the build folder too. Where the two differ, CMake reserves room for the longer one by
# padding the build's with ':', and each empty entry makes the loader search the current folder (tools/checks/runpaths.py).
function(pentatron_install target destination)
  get_target_property(kind ${target} TYPE)
  set(entries "$ORIGIN" "$ORIGIN/${_site}/torch/lib")
  if(kind STREQUAL "EXECUTABLE")
    # The build folder keeps its libraries in lib/ whatever the installed folder is called.
    set(entries "$ORIGIN/../lib" "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}" "$ORIGIN/../lib/${_site}/torch/lib"
      "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/${_site}/torch/lib")
    list(REMOVE_DUPLICATES entries)
  endif()
  list(APPEND entries ${ARGN})
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${entries}" BUILD_WITH_INSTALL_RPATH ON)
  install(TARGETS ${target} RUNTIME DESTINATION "${destination}" LIBRARY DESTINATION "${destination}")
endfunction()

pentatron_install(pentatron "${CMAKE_INSTALL_LIBDIR}")
if(TARGET pentatron_sentencepiece)
  pentatron_install(pentatron_sentencepiece "${CMAKE_INSTALL_LIBDIR}")
endif()
foreach(library pentatron_monitor_library pentatron_http_library)
  if(TARGET ${library})
    pentatron_install(${library} "${CMAKE_INSTALL_LIBDIR}")
  endif()
endforeach()
if(TARGET pentatron_cuda)
  pentatron_install(pentatron_cuda "${CMAKE_INSTALL_LIBDIR}" "${PENTATRON_CUDA_ROOT}/lib")
endif()
if(TARGET pentatron_program)
  pentatron_install(pentatron_program "${CMAKE_INSTALL_BINDIR}")
endif()
install(DIRECTORY "${CMAKE_SOURCE_DIR}/pentatron" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h"
  PATTERN "*test*" EXCLUDE
  PATTERN "gloo_stubs" EXCLUDE
  PATTERN "testdata" EXCLUDE
  PATTERN "kernels" EXCLUDE)
if(PENTATRON_INSTALL_TORCH)
  # What the libraries load, where it lies below the wheels' folder, and the headers.
  set(_torch_libraries "${PENTATRON_TORCH_ROOT}/lib/libtorch_cpu.so")
  if(TARGET pentatron_cuda)
    list(APPEND _torch_libraries "${PENTATRON_TORCH_ROOT}/lib/libtorch_cuda.so")
  endif()
  configure_file("${CMAKE_SOURCE_DIR}/cmake/install_torch.cmake.in" "${CMAKE_BINARY_DIR}/install_torch.cmake" @ONLY)
  install(SCRIPT "${CMAKE_BINARY_DIR}/install_torch.cmake")
  install(DIRECTORY "${PENTATRON_TORCH_ROOT}/include" DESTINATION "${CMAKE_INSTALL_LIBDIR}/${_site}/torch")
else()
  install(CODE "file(MAKE_DIRECTORY \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pentatron\")
    file(REMOVE_RECURSE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/${_site}\")
    file(CREATE_LINK \"${_site_root}\" \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/${_site}\" SYMBOLIC)")
endif()
configure_package_config_file("${CMAKE_SOURCE_DIR}/cmake/PentatronConfig.cmake.in"
  "${CMAKE_BINARY_DIR}/PentatronConfig.cmake" INSTALL_DESTINATION "${package_dir}")
# Before 1.0 any minor version may change the headers.
write_basic_package_version_file("${CMAKE_BINARY_DIR}/PentatronConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/PentatronConfig.cmake" "${CMAKE_BINARY_DIR}/PentatronConfigVersion.cmake"
  DESTINATION "${package_dir}")

# The manual page and the completions, written by the installed program's own tables.
if(TARGET pentatron_program)
  set(_generated "${CMAKE_BINARY_DIR}/share")
  add_custom_command(
    OUTPUT "${_generated}/pentatron.1" "${_generated}/pentatron.bash" "${_generated}/_pentatron" "${_generated}/pentatron.fish"
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${_generated}"
    COMMAND pentatron_program man > "${_generated}/pentatron.1"
    COMMAND pentatron_program completion bash > "${_generated}/pentatron.bash"
    COMMAND pentatron_program completion zsh > "${_generated}/_pentatron"
    COMMAND pentatron_program completion fish > "${_generated}/pentatron.fish"
    DEPENDS pentatron_program VERBATIM)
  add_custom_target(pentatron_share ALL DEPENDS "${_generated}/pentatron.1")
  install(FILES "${_generated}/pentatron.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
  install(FILES "${_generated}/pentatron.bash" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions"
    RENAME pentatron)
  install(FILES "${_generated}/_pentatron" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
  install(FILES "${_generated}/pentatron.fish" DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
endif()
