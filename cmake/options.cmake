# SPDX-License-Identifier: Apache-2.0
# Modules in dependency order; a module may include what stands in cmake/layers.txt to the right of its arrow.
set(PENTATRON_ALL_MODULES
    base config families tensor ops comm tokenizers datasets nn parallel_layers transformer models
    pipeline_parallel distributed optimizer checkpoint inference training bench conversion http monitor)
set(PENTATRON_TORCH_FREE_MODULES base config families tokenizers datasets http monitor)
# Empty, so that a build folder made before a module was added builds that module too.
set(PENTATRON_ONLY_MODULES "" CACHE STRING "Modules to build (semicolon list); empty: all")
set(PENTATRON_MODULES "${PENTATRON_ALL_MODULES}")
if(PENTATRON_ONLY_MODULES)
  set(PENTATRON_MODULES "${PENTATRON_ONLY_MODULES}")
endif()
option(PENTATRON_APPS "Build the program" ON)
option(PENTATRON_TESTS "Build the tests" ON)
option(PENTATRON_SANITIZE "AddressSanitizer and UBSan" OFF)
option(PENTATRON_WERROR "Warnings are errors" OFF)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
# A carried build tree finds its own libraries.
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND};-E;env;CCACHE_BASEDIR=${CMAKE_SOURCE_DIR};CCACHE_NOHASHDIR=1;CCACHE_PCH_EXTSUM=1;CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime;${CCACHE_PROGRAM}")
endif()
find_program(LLD_PROGRAM ld.lld)
if(LLD_PROGRAM)
  add_link_options(-fuse-ld=lld)
endif()

# nvcc takes its own (cmake/cuda.cmake).
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-unused-parameter -ffp-contract=off -fpch-preprocess>")
if(PENTATRON_WERROR)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(PENTATRON_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined -g1 -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  # For every test and the processes it starts. Container overflow is off because libtorch is not instrumented.
  string(CONCAT PENTATRON_SANITIZER_ENVIRONMENT "ASAN_OPTIONS=detect_container_overflow=0;"
    "UBSAN_OPTIONS=print_stacktrace=1;LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/sanitizers/leaks.txt:print_suppressions=0;")
endif()
