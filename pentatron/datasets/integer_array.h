// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "pentatron/base/debug_check.h"

namespace pentatron::datasets {

// A read-only array of int16, int32, int64 or uint32, in memory of its own or inside a mapped file;
// copies share it.
class IntegerArray final {
 public:
  enum class Kind { kInt16, kInt32, kInt64, kUint32 };

  IntegerArray() = default;
  explicit IntegerArray(std::vector<std::int16_t> values) : kind_(Kind::kInt16) {
    own(std::move(values));
  }
  explicit IntegerArray(std::vector<std::int32_t> values) : kind_(Kind::kInt32) {
    own(std::move(values));
  }
  explicit IntegerArray(std::vector<std::int64_t> values) : kind_(Kind::kInt64) {
    own(std::move(values));
  }
  explicit IntegerArray(std::vector<std::uint32_t> values) : kind_(Kind::kUint32) {
    own(std::move(values));
  }
  // A view of `count` elements at `data`, kept alive by `owner`.
  IntegerArray(Kind kind, const std::byte* data, std::int64_t count,
               std::shared_ptr<const void> owner)
      : kind_(kind), data_(data), size_(count), owner_(std::move(owner)) {}

  // Bytes of a value.
  [[nodiscard]] static std::size_t width(Kind kind) {
    return kind == Kind::kInt64 ? 8 : (kind == Kind::kInt16 ? 2 : 4);
  }

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] std::int64_t size() const { return size_; }
  // `i` must be in range.
  [[nodiscard]] std::int64_t operator[](std::int64_t i) const {
    switch (kind_) {
      case Kind::kInt16:
        return load<std::int16_t>(i);
      case Kind::kInt32:
        return load<std::int32_t>(i);
      case Kind::kInt64:
        return load<std::int64_t>(i);
      case Kind::kUint32:
        return load<std::uint32_t>(i);
    }
    return 0;
  }
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {data_, static_cast<std::size_t>(size_) * width(kind_)};
  }

 private:
  template <typename T>
  [[nodiscard]] T load(std::int64_t i) const {
    PENTATRON_DEBUG_CHECK(i >= 0 && i < size_, "element {} of {}", i, size_);
    T value;
    std::memcpy(&value, data_ + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    return value;
  }
  template <typename T>
  void own(std::vector<T> values) {
    auto owner = std::make_shared<const std::vector<T>>(std::move(values));
    data_ = reinterpret_cast<const std::byte*>(owner->data());
    size_ = static_cast<std::int64_t>(owner->size());
    owner_ = std::move(owner);
  }

  Kind kind_ = Kind::kInt32;
  const std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
  std::shared_ptr<const void> owner_;
};

}  // namespace pentatron::datasets
