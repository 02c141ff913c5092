// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/datasets/integer_array.h"

// Arrays of an index in NumPy's format, and the cache files that hold them.
namespace pentatron::datasets {

// A mapped file of one dimension, or of two with two columns. Another shape or dtype, or a damaged
// file: ErrorKind::kData; a missing one: kIo.
[[nodiscard]] IntegerArray load_index_array(const std::filesystem::path& path,
                                            std::size_t num_dims);

// Written atomically; `pairs`: two columns. Errors: kIo.
void write_index_array(const std::filesystem::path& path, const IntegerArray& array,
                       bool pairs = false);

// An array of a cached index.
struct CachedArray {
  std::string_view name;           // its file is STEM-NAME.npy
  IntegerArray* values = nullptr;  // filled by cache_serves(), written by write_cache()
  bool pairs = false;              // two columns
};

// An index in a cache folder: STEM-description.txt and the arrays.
struct CacheEntry {
  std::string_view what;       // "index", for messages
  std::filesystem::path stem;  // begin of its files' names, folder included
  std::string description;     // the exact text of STEM-description.txt
  std::vector<CachedArray> arrays;
};

// Reads the arrays of an entry whose files are all there. False when one is missing, and, with a
// warning that says why, when the description is another one, a file is damaged, or `wrong_with`
// finds something in the arrays.
[[nodiscard]] bool cache_serves(const CacheEntry& entry,
                                const std::function<std::optional<std::string>()>& wrong_with);

// Writes the arrays, then the description, each atomically; the folder is made when missing. What
// cannot be written is a warning.
void write_cache(const CacheEntry& entry);

}  // namespace pentatron::datasets
