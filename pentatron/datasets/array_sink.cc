// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/array_sink.h"

#include <cstring>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/datasets/index_file.h"

namespace pentatron::datasets {

ArraySink::ArraySink(std::filesystem::path file, std::int64_t columns,
                     std::uint64_t largest_in_memory)
    : file_(std::move(file)), columns_(columns), largest_in_memory_(largest_in_memory) {}

void ArraySink::begin(IntegerArray::Kind kind, std::int64_t size) {
  kind_ = kind;
  size_ = size;
  const std::size_t all = static_cast<std::size_t>(size) * IntegerArray::width(kind);
  if (!file_.empty() && all > largest_in_memory_) open();
  if (opened_ == nullptr) {
    memory_ = std::shared_ptr<std::byte[]>(new std::byte[all]);  // not filled with zeros first
  }
}

void ArraySink::open() {
  try {
    create_folders(file_.parent_path());
    opened_ = std::make_unique<CacheFile>(file_);
    opened_->write(index_array_header(kind_, size_, columns_));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo) throw;
    opened_.reset();
  }
}

void ArraySink::put(std::span<const std::byte> values) {
  if (values.empty()) return;
  const std::size_t all = static_cast<std::size_t>(size_) * IntegerArray::width(kind_);
  PENTATRON_CHECK(values.size() <= all - bytes_, kInternal, "more than {} values", size_);
  if (opened_ == nullptr) {
    std::memcpy(memory_.get() + bytes_, values.data(), values.size());
  } else {
    try {
      opened_->write(values);
    } catch (const Error&) {
      failed_ = true;
      throw;
    }
  }
  bytes_ += values.size();
}

IntegerArray ArraySink::finish() {
  PENTATRON_CHECK(bytes_ == static_cast<std::size_t>(size_) * IntegerArray::width(kind_), kInternal,
                  "{} bytes are not {} values", bytes_, size_);
  if (opened_ != nullptr) return load_index_array(opened_->path(), columns_);
  const std::byte* const data = memory_.get();
  return {kind_, data, size_, std::move(memory_)};
}

}  // namespace pentatron::datasets
