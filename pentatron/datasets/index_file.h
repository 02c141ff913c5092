// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/datasets/array_sink.h"
#include "pentatron/datasets/cache_log.h"
#include "pentatron/datasets/integer_array.h"

// Arrays of an index in NumPy's format, and the cache files that hold them.
namespace pentatron::datasets {

// A mapped file of one dimension, or of two with so many columns. Another shape or dtype, or a
// damaged file: ErrorKind::kData; a missing one: kIo.
[[nodiscard]] IntegerArray load_index_array(const std::filesystem::path& path,
                                            std::int64_t columns = 1);

// What stands before the values of such a file.
[[nodiscard]] std::string index_array_header(IntegerArray::Kind kind, std::int64_t size,
                                             std::int64_t columns = 1);

// Written under another name first (cache_file.h). Errors: kIo.
void write_index_array(const std::filesystem::path& path, const IntegerArray& array,
                       std::int64_t columns = 1);

// An array of a cached index.
struct CachedArray {
  std::string_view name;           // its file is STEM-NAME.npy
  IntegerArray* values = nullptr;  // filled from the file, or by who builds it
  std::int64_t columns = 1;        // more: an array of two dimensions
};

inline constexpr std::uint64_t kLargestInMemory = std::uint64_t{256} << 20;

// An index in a cache folder: STEM-description.txt and STEM-NAME.npy, Megatron's files, and
// STEM-checksums.txt, ours.
struct CacheEntry {
  std::string_view what;       // "index", for messages
  std::filesystem::path stem;  // begin of its files' names, folder included
  std::string description;     // the exact text of STEM-description.txt
  std::string made_of;  // what else decides the arrays, such as Corpus::layout_checksum(): part of
                        // the checksums, so that a stale entry is known
  std::vector<CachedArray> arrays;
  // Arrays of more bytes do not stay in memory: once written they are read from their files, and
  // those that are drawn in order (CacheUse::build) go there at once. 0: of one of many.
  std::uint64_t largest_in_memory = kLargestInMemory;
  CacheLog* log = nullptr;  // told what becomes of it
};

struct CacheUse {
  // Why the arrays that were found cannot be those of such an index; nothing when they can. Beyond
  // damage, which the checksums find: sizes, mostly.
  std::function<std::optional<std::string>()> wrong_with;
  // Fills the arrays. `sinks`: one an array, which may be used for what is drawn in order. Called
  // again where a sink cannot be written, then with sinks in memory.
  std::function<void(std::span<ArraySink> sinks)> build;
};

// Fills the arrays of an index: from its files, or by building it, and then its files are written.
// `names`: the same arrays under several descriptions, at least one; looked for in this order,
// written under the first (under a later one where only that one's files are there). True: they
// came from files.
//
// Files serve when all are there, the checksums among them (Megatron writes none: what it left must
// be built once more to be believed; its arrays then stay), and when these are of the same arrays
// under the same description, made of the same. What does not serve is built again, with a warning
// that says why. One builds at a time, of all threads and processes that see the folder (a lock on
// STEM.lock, where the folder can be written and its file system has locks): the others wait, say
// so, and find the files. Arrays that stand there already are not written again; all files are
// written atomically, the description last; what cannot be written is a warning.
[[nodiscard]] bool serve_or_build(std::span<const CacheEntry> names, const CacheUse& use);

}  // namespace pentatron::datasets
