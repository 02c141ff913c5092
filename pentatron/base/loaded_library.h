// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace pentatron {

// The function `symbol` of a library of ours (libpentatron_NAME.so) that is loaded only by who
// wants it, and never unloaded: its threads and exceptions may outlive any scope. It is looked for
// beside libpentatron.so alone, by its whole path: a bare name would be looked up as whoever calls
// dlopen asks. `purpose`, for messages: what needs it. kUnsupported when it is missing, kInternal
// when it is another version's.
[[nodiscard]] void* symbol_of_library(const std::string& file, const char* symbol,
                                      const std::string& purpose);

}  // namespace pentatron
