// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/index_file.h"

#include <memory>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
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

}  // namespace pentatron::datasets
