// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/index_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/log.h"
#include "pentatron/base/npy.h"
#include "pentatron/base/sha256.h"
#include "pentatron/datasets/cache_file.h"
#include "pentatron/datasets/cache_lock.h"

namespace pentatron::datasets {
namespace fs = std::filesystem;
namespace {

template <typename T>
IntegerArray view(IntegerArray::Kind kind, std::shared_ptr<const MappedNpy> file) {
  const auto values = file->values<T>();
  const auto* data = reinterpret_cast<const std::byte*>(values.data());
  return IntegerArray(kind, data, static_cast<std::int64_t>(values.size()), std::move(file));
}

NpyType npy_type(IntegerArray::Kind kind) {
  switch (kind) {
    case IntegerArray::Kind::kInt16:
      return NpyType::kI2;
    case IntegerArray::Kind::kInt32:
      return NpyType::kI4;
    case IntegerArray::Kind::kInt64:
      return NpyType::kI8;
    case IntegerArray::Kind::kUint32:
      return NpyType::kU4;
  }
  PENTATRON_THROW(kInternal, "unknown kind of index");
}

fs::path file_of(const CacheEntry& entry, std::string_view affix) {
  fs::path path = entry.stem;
  path += affix;
  return path;
}

fs::path description_file(const CacheEntry& entry) { return file_of(entry, "-description.txt"); }

fs::path array_file(const CacheEntry& entry, const CachedArray& array) {
  return file_of(entry, "-" + std::string(array.name) + ".npy");
}

fs::path checksums_file(const CacheEntry& entry) { return file_of(entry, "-checksums.txt"); }

constexpr std::string_view kChecksumsHead =
    "crc32c of the description, its sources and each array\n";
constexpr std::string_view kOldChecksumsHead = "crc32c of the description and each array\n";

// Every sum begins with those of the description and the sources, so that arrays made of something
// else do not pass.
std::string checksums_text(const CacheEntry& entry) {
  const std::uint32_t key = crc32c(std::as_bytes(std::span(entry.made_of)),
                                   crc32c(std::as_bytes(std::span(entry.description))));
  std::string text(kChecksumsHead);
  for (const CachedArray& array : entry.arrays) {
    text += fmt::format("{} {:08x}\n", array.name, crc32c(array.values->bytes(), key));
  }
  return text;
}

// Fills the arrays. What is wrong with the files, or nothing.
std::optional<std::string> read_entry(const CacheEntry& entry) {
  // A longer text is another one: no more of it is read.
  if (read_text_file(description_file(entry), entry.description.size()) != entry.description) {
    return "the description is another one";
  }
  for (const CachedArray& array : entry.arrays) {
    *array.values = load_index_array(array_file(entry, array), array.columns);
  }
  const std::string sums = checksums_text(entry);
  if (read_text_file(checksums_file(entry), sums.size()) != sums) {
    return "its checksums are of other arrays, or it was made of other data";
  }
  return std::nullopt;
}

bool stands_already(const fs::path& path, const CachedArray& array) {
  std::error_code code;
  if (!fs::is_regular_file(path, code)) return false;
  try {
    const IntegerArray there = load_index_array(path, array.columns);
    return there.kind() == array.values->kind() &&
           std::ranges::equal(there.bytes(), array.values->bytes());
  } catch (const Error&) {
    return false;  // damaged
  }
}

// Whether Megatron's files of an entry are there, in whatever state.
bool stands(const CacheEntry& entry) {
  std::error_code code;
  for (const CachedArray& array : entry.arrays) {
    if (!fs::is_regular_file(array_file(entry, array), code)) return false;
  }
  return fs::is_regular_file(description_file(entry), code);
}

// Whether it has checksums of this form; earlier ones did not know what an index was made of.
bool has_checksums(const CacheEntry& entry) {
  std::error_code code;
  if (!fs::is_regular_file(checksums_file(entry), code)) return false;
  std::ifstream file(checksums_file(entry), std::ios::binary);
  std::string head(kOldChecksumsHead.size(), '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  return head != kOldChecksumsHead;
}

void write_text(const fs::path& path, const std::string& text) {
  CacheFile file(path);
  file.write(text);
  file.commit();
}

void note(const CacheEntry& entry, CacheLog::Fate fate) {
  if (entry.log == nullptr) return;
  std::uint64_t bytes = 0;
  for (const CachedArray& array : entry.arrays) bytes += array.values->bytes().size();
  entry.log->add({.stem = entry.stem.string(), .fate = fate, .bytes = bytes});
}

// Fills the arrays from the files of an entry, or says why not: nothing when there are none.
bool serves(const CacheEntry& entry, const CacheUse& use) {
  if (!stands(entry) || !has_checksums(entry)) return false;
  std::optional<std::string> problem;
  try {
    problem = read_entry(entry);
    if (!problem) problem = use.wrong_with();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kData && error.kind() != ErrorKind::kIo) throw;
    problem = error.what();
  }
  if (!problem) {
    note(entry, CacheLog::Fate::kServed);
    return true;
  }
  log::warn("the cached {} {} is damaged and will be built again: {}", entry.what,
            description_file(entry).string(), *problem);
  return false;
}

void tell_unwritten(const CacheEntry& entry, const Error& error) {
  log::warn(
      "the {} cannot be cached and will be built again next time: {} (--data-cache-path "
      "chooses another folder)",
      entry.what, error.what());
}

// Fills the arrays, those that go to their files through `sinks`. False: these could not be
// written, and all arrays are in memory.
bool build(const CacheEntry& entry, const CacheUse& use, std::vector<ArraySink>& sinks) {
  for (const CachedArray& array : entry.arrays) {
    sinks.emplace_back(array_file(entry, array), array.columns, entry.largest_in_memory);
  }
  try {
    use.build(sinks);
    return true;
  } catch (const Error& error) {
    if (std::ranges::none_of(sinks, &ArraySink::failed)) throw;
    tell_unwritten(entry, error);
  }
  sinks.clear();
  sinks.resize(entry.arrays.size());
  use.build(sinks);
  note(entry, CacheLog::Fate::kUnwritten);
  return false;
}

// Whether all files are there now.
bool write(const CacheEntry& entry, std::span<ArraySink> sinks) {
  try {
    create_folders(entry.stem.parent_path());
    for (std::size_t k = 0; k < entry.arrays.size(); ++k) {
      const CachedArray& array = entry.arrays[k];
      const fs::path path = array_file(entry, array);
      if (stands_already(path, array)) continue;
      if (sinks[k].in_file()) {
        sinks[k].commit();
      } else {
        write_index_array(path, *array.values, array.columns);
      }
    }
    write_text(checksums_file(entry), checksums_text(entry));
    write_text(description_file(entry), entry.description);
    note(entry, CacheLog::Fate::kWritten);
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo) throw;
    note(entry, CacheLog::Fate::kUnwritten);
    tell_unwritten(entry, error);
    return false;
  }
}

// Large arrays as a later run finds them, in place of those in memory: of billions of samples, or
// of a blend of thousands of corpora, there are gigabytes, of which a run reads a little at a time.
void use_files(const CacheEntry& entry) {
  for (const CachedArray& array : entry.arrays) {
    if (array.values->bytes().size() <= entry.largest_in_memory) continue;
    try {
      *array.values = load_index_array(array_file(entry, array), array.columns);
    } catch (const Error& error) {
      // Taken away meanwhile: the array in memory serves as well.
      if (error.kind() != ErrorKind::kData && error.kind() != ErrorKind::kIo) throw;
    }
  }
}

}  // namespace

IntegerArray load_index_array(const fs::path& path, std::int64_t columns) {
  auto file = std::make_shared<const MappedNpy>(path);
  const NpyHeader& header = file->header();
  const std::size_t dims = columns == 1 ? 1 : 2;
  PENTATRON_CHECK(header.shape.size() == dims && (columns == 1 || header.shape[1] == columns),
                  kData, "{}: expected {} dimensions and {} columns, found {} dimensions",
                  path.string(), dims, columns, header.shape.size());
  switch (header.type) {
    case NpyType::kI2:
      return view<std::int16_t>(IntegerArray::Kind::kInt16, std::move(file));
    case NpyType::kI4:
      return view<std::int32_t>(IntegerArray::Kind::kInt32, std::move(file));
    case NpyType::kI8:
      return view<std::int64_t>(IntegerArray::Kind::kInt64, std::move(file));
    case NpyType::kU4:
      return view<std::uint32_t>(IntegerArray::Kind::kUint32, std::move(file));
    default:
      PENTATRON_THROW(kData, "{}: dtype {} holds no index", path.string(), npy_descr(header.type));
  }
}

std::string index_array_header(IntegerArray::Kind kind, std::int64_t size, std::int64_t columns) {
  std::vector<std::int64_t> shape = {size};
  if (columns > 1) shape = {size / columns, columns};
  return make_npy_header(npy_type(kind), shape);
}

void write_index_array(const fs::path& path, const IntegerArray& array, std::int64_t columns) {
  CacheFile file(path);
  file.write(index_array_header(array.kind(), array.size(), columns));
  file.write(array.bytes());
  file.commit();
}

bool serve_or_build(std::span<const CacheEntry> names, const CacheUse& use) {
  PENTATRON_CHECK(!names.empty(), kInternal, "an index without a name");
  const auto any_serves = [&] {
    return std::ranges::any_of(names, [&](const CacheEntry& e) { return serves(e, use); });
  };
  const bool damaged = std::ranges::any_of(names, stands);
  if (any_serves()) return true;
  const CacheLock lock(file_of(names.front(), ".lock"), names.front().what);
  // Another may have built it just now. What was seen to be damaged is looked at again only after
  // waiting for one who mends it.
  if ((lock.waited() || !damaged) && any_serves()) return true;
  const auto found = std::ranges::find_if(names, stands);
  const CacheEntry& entry = found == names.end() ? names.front() : *found;
  std::vector<ArraySink> sinks;
  if (build(entry, use, sinks) && write(entry, sinks)) use_files(entry);
  return false;
}

}  // namespace pentatron::datasets
