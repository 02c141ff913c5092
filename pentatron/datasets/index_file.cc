// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/index_file.h"

#include <memory>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/log.h"
#include "pentatron/base/npy.h"

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

bool all_there(const CacheEntry& entry) {
  std::error_code code;
  for (const CachedArray& array : entry.arrays) {
    if (!fs::is_regular_file(array_file(entry, array), code)) return false;
  }
  return fs::is_regular_file(description_file(entry), code);
}

}  // namespace

IntegerArray load_index_array(const fs::path& path, std::size_t num_dims) {
  auto file = std::make_shared<const MappedNpy>(path);
  const NpyHeader& header = file->header();
  PENTATRON_CHECK(header.shape.size() == num_dims && (num_dims == 1 || header.shape[1] == 2), kData,
                  "{}: expected {} dimensions, found {}", path.string(), num_dims,
                  header.shape.size());
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

void write_index_array(const fs::path& path, const IntegerArray& array, bool pairs) {
  std::vector<std::int64_t> shape = {array.size()};
  if (pairs) shape = {array.size() / 2, 2};
  write_npy_bytes(path, npy_type(array.kind()), shape, array.bytes());
}

bool cache_serves(const CacheEntry& entry,
                  const std::function<std::optional<std::string>()>& wrong_with) {
  if (!all_there(entry)) return false;
  std::optional<std::string> problem;
  try {
    // A longer text is another one: no more of it is read.
    if (read_text_file(description_file(entry), entry.description.size()) != entry.description) {
      problem = "the description is another one";
    } else {
      for (const CachedArray& array : entry.arrays) {
        *array.values = load_index_array(array_file(entry, array), array.pairs ? 2 : 1);
      }
      problem = wrong_with();
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kData && error.kind() != ErrorKind::kIo) throw;
    problem = error.what();
  }
  if (!problem) return true;
  log::warn("the cached {} {} is damaged and will be built again: {}", entry.what,
            description_file(entry).string(), *problem);
  return false;
}

void write_cache(const CacheEntry& entry) {
  try {
    create_folders(entry.stem.parent_path());
    for (const CachedArray& array : entry.arrays) {
      write_index_array(array_file(entry, array), *array.values, array.pairs);
    }
    write_file_atomically(description_file(entry), entry.description);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo) throw;
    log::warn(
        "the {} cannot be cached and will be built again next time: {} (--data-cache-path "
        "chooses another folder)",
        entry.what, error.what());
  }
}

}  // namespace pentatron::datasets
