// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/datasets/cache_log.h"
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

// An index in a cache folder: STEM-description.txt and STEM-NAME.npy, Megatron's files, and
// STEM-checksums.txt, ours.
struct CacheEntry {
  std::string_view what;       // "index", for messages
  std::filesystem::path stem;  // begin of its files' names, folder included
  std::string description;     // the exact text of STEM-description.txt
  std::vector<CachedArray> arrays;
  CacheLog* log = nullptr;  // told what becomes of it
};

// Reads the arrays of an entry. False when a file is missing, the checksums among them (Megatron
// writes none: what it left must be built once more to be believed); and, with a warning that says
// why, when the description is another one, a file is damaged, the checksums are not those of these
// arrays under this description, or `wrong_with` finds something in the arrays.
[[nodiscard]] bool cache_serves(const CacheEntry& entry,
                                const std::function<std::optional<std::string>()>& wrong_with);

// Whether Megatron's files of an entry are there, in whatever state.
[[nodiscard]] bool cache_stands(const CacheEntry& entry);

// Writes the arrays that do not stand there already, then checksums and description, each
// atomically; the folder is made when missing. What cannot be written is a warning.
void write_cache(const CacheEntry& entry);

}  // namespace pentatron::datasets
