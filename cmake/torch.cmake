# SPDX-License-Identifier: Apache-2.0
# Hand-written imported targets over the unpacked wheel (tools/setup/fetch_deps.sh); find_package(Torch) would demand CUDA.
set(PENTATRON_DEPS_DIR "${CMAKE_SOURCE_DIR}/.deps" CACHE PATH "Folder of the unpacked wheels")
set(PENTATRON_TORCH_ROOT "${PENTATRON_DEPS_DIR}/site/torch")
set(_needs_torch OFF)
foreach(module IN LISTS PENTATRON_MODULES)
  if(NOT module IN_LIST PENTATRON_TORCH_FREE_MODULES)
    set(_needs_torch ON)
  endif()
endforeach()
set(PENTATRON_WITH_TORCH ${_needs_torch})
find_package(Threads REQUIRED)

# Imports libraries of the torch wheel as torch::NAME.
function(pentatron_import_torch)
  foreach(lib IN LISTS ARGN)
    add_library(torch::${lib} SHARED IMPORTED)
    set_target_properties(torch::${lib} PROPERTIES
      IMPORTED_LOCATION "${PENTATRON_TORCH_ROOT}/lib/lib${lib}.so"
      INTERFACE_INCLUDE_DIRECTORIES "${PENTATRON_TORCH_ROOT}/include;${PENTATRON_TORCH_ROOT}/include/torch/csrc/api/include")
  endforeach()
endfunction()

if(PENTATRON_WITH_TORCH)
  if(NOT EXISTS "${PENTATRON_TORCH_ROOT}/lib/libtorch_cpu.so")
    message(FATAL_ERROR "libtorch not found in ${PENTATRON_TORCH_ROOT}: run `make deps` first")
  endif()
  pentatron_import_torch(c10 torch_cpu)
  set_property(TARGET torch::torch_cpu PROPERTY INTERFACE_LINK_LIBRARIES torch::c10)
  set_property(TARGET torch::torch_cpu PROPERTY INTERFACE_COMPILE_DEFINITIONS
    "USE_DISTRIBUTED;USE_C10D_GLOO=1")
endif()
