// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

// Reading a map of a file that somebody has cut short meanwhile is a SIGBUS, which says nothing.
// Here the maps are known by name, so that the process can say which file it was.
namespace pentatron {

// From now on a fault inside [begin, begin + size) names `path`; forgotten by forget_mapping. Safe
// from several threads. Beyond a fixed number of maps at a time, the further ones have no name.
void remember_mapping(const void* begin, std::size_t size, std::string_view path);
void forget_mapping(const void* begin);

// SIGBUS in a known map: one line to standard error that names the file, and the exit code of a
// data error. Any other SIGBUS ends the process as it does by default. Called once, by main.
void tell_mapping_faults();

}  // namespace pentatron
