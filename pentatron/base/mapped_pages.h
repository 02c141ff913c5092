// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace pentatron {

// Takes the pages that lie wholly in `bytes`, a piece of a MappedFile, out of this process's
// memory; they come back from the file when they are read again. For readers of files larger than
// memory.
void release_pages(std::span<const std::byte> bytes);

}  // namespace pentatron
