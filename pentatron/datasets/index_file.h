// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>

#include "pentatron/datasets/integer_array.h"

// Arrays of an index in NumPy's format.
namespace pentatron::datasets {

// A mapped file of one dimension, or of two with two columns. Another shape or dtype, or a damaged
// file: ErrorKind::kData; a missing one: kIo.
[[nodiscard]] IntegerArray load_index_array(const std::filesystem::path& path,
                                            std::size_t num_dims);

// Written atomically; `pairs`: two columns. Errors: kIo.
void write_index_array(const std::filesystem::path& path, const IntegerArray& array,
                       bool pairs = false);

}  // namespace pentatron::datasets
