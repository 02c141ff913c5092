// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "pentatron/base/file.h"
#include "pentatron/base/ranged_source.h"

namespace pentatron::datasets {

// Whether a word names an object on a server (http:// or https://), not a file.
[[nodiscard]] bool is_remote(std::string_view word);

// Opens the object at an address (library libpentatron_http.so). Errors: those of
// http::HttpRangedSource, and kUnsupported without that library.
[[nodiscard]] std::unique_ptr<RangedSource> open_remote(const std::string& url);

// Copies a whole object into an unnamed file under TMPDIR and maps it: for indices, which are read
// all over. The file takes as much room as bytes have come. kIo when there is no room.
[[nodiscard]] MappedFile download(const RangedSource& source);

}  // namespace pentatron::datasets
