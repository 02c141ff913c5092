// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "pentatron/datasets/cache_file.h"
#include "pentatron/datasets/integer_array.h"

namespace pentatron::datasets {

// Takes the values of an array in their order. They stay in memory, or, of a large array that has
// a cache file, go there under the file's temporary name, so that memory need not hold them all.
class ArraySink final {
 public:
  ArraySink() = default;  // memory
  // `file`: the cache file of the array, with so many columns, if it has more bytes than
  // `largest_in_memory`. Nothing is created before begin().
  ArraySink(std::filesystem::path file, std::int64_t columns, std::uint64_t largest_in_memory);

  // What comes: so many values. Where the file cannot be made they stay in memory after all.
  void begin(IntegerArray::Kind kind, std::int64_t size);
  // Errors: kIo, of the file.
  void put(std::span<const std::byte> values);
  // All of them; other numbers of values than announced are kInternal.
  [[nodiscard]] IntegerArray finish();

  [[nodiscard]] bool in_file() const { return opened_ != nullptr; }
  // The file could not be written: what put() threw was about it.
  [[nodiscard]] bool failed() const { return failed_; }
  // Gives the file its final name. Without it the file is gone with the sink; an array of
  // finish() stays readable.
  void commit() { opened_->commit(); }

 private:
  void open();

  std::filesystem::path file_;
  std::int64_t columns_ = 1;
  std::uint64_t largest_in_memory_ = 0;
  IntegerArray::Kind kind_ = IntegerArray::Kind::kInt32;
  std::int64_t size_ = 0;
  std::size_t bytes_ = 0;  // that were put
  std::shared_ptr<std::byte[]> memory_;
  std::unique_ptr<CacheFile> opened_;
  bool failed_ = false;
};

}  // namespace pentatron::datasets
