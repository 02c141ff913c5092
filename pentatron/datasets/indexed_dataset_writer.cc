// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/indexed_dataset_writer.h"

#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/datasets/indexed_dataset.h"

namespace pentatron::datasets {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;

template <typename T>
void append(std::vector<std::byte>& buffer, T value) {
  const std::size_t at = buffer.size();
  buffer.resize(at + sizeof(T));
  std::memcpy(buffer.data() + at, &value, sizeof(T));
}

// Collects small values and hands them on in large writes.
class BufferedOutput final {
 public:
  explicit BufferedOutput(AtomicFile& file) : file_(file) { buffer_.reserve(kBufferBytes + 64); }
  template <typename T>
  void put(T value) {
    append(buffer_, value);
    if (buffer_.size() >= kBufferBytes) flush();
  }
  void flush() {
    if (!buffer_.empty()) file_.write(std::span<const std::byte>(buffer_));
    buffer_.clear();
  }

 private:
  AtomicFile& file_;
  std::vector<std::byte> buffer_;
};

}  // namespace

IndexedDatasetWriter::IndexedDatasetWriter(std::string prefix, TokenDtype dtype, bool overwrite)
    : prefix_(std::move(prefix)), dtype_(dtype) {
  PENTATRON_CHECK(dtype_ == TokenDtype::kUint16 || dtype_ == TokenDtype::kInt32, kInternal,
                  "{}: the writer knows uint16 and int32, not {}", prefix_, to_string(dtype_));
  for (const auto& path : {bin_path(prefix_), index_path(prefix_)}) {
    PENTATRON_CHECK(
        overwrite || !std::filesystem::exists(path), kConfig,
        "{} exists already: choose another --output-prefix, or pass --force to replace it",
        path.string());
  }
  const std::filesystem::path folder = bin_path(prefix_).parent_path();
  if (!folder.empty()) create_folders(folder);
  bin_ = std::make_unique<AtomicFile>(bin_path(prefix_));
  buffer_.reserve(kBufferBytes + 64);
}

IndexedDatasetWriter::~IndexedDatasetWriter() = default;

void IndexedDatasetWriter::flush() {
  if (!buffer_.empty()) bin_->write(std::span<const std::byte>(buffer_));
  buffer_.clear();
}

void IndexedDatasetWriter::add_sequence(std::span<const std::int32_t> tokens) {
  constexpr std::size_t kLimit = std::numeric_limits<std::int32_t>::max();
  PENTATRON_CHECK(tokens.size() <= kLimit, kData,
                  "{}: document {} has {} tokens; the format holds at most {} in a sequence",
                  prefix_, num_documents(), tokens.size(), kLimit);
  const std::int32_t limit = dtype_ == TokenDtype::kUint16
                                 ? std::numeric_limits<std::uint16_t>::max()
                                 : std::numeric_limits<std::int32_t>::max();
  for (const std::int32_t token : tokens) {
    PENTATRON_CHECK(token >= 0 && token <= limit, kData,
                    "{}: document {} has token {}; {} holds 0 to {}", prefix_, num_documents(),
                    token, to_string(dtype_), limit);
    if (dtype_ == TokenDtype::kUint16) {
      append(buffer_, static_cast<std::uint16_t>(token));
    } else {
      append(buffer_, token);
    }
    if (buffer_.size() >= kBufferBytes) flush();
  }
  lengths_.push_back(static_cast<std::int32_t>(tokens.size()));
  PENTATRON_CHECK(open_sequences_ < std::numeric_limits<std::int32_t>::max(), kData,
                  "{}: document {} has too many sequences", prefix_, num_documents());
  ++open_sequences_;
  num_tokens_ += static_cast<std::int64_t>(tokens.size());
}

void IndexedDatasetWriter::end_document() {
  document_sequences_.push_back(open_sequences_);
  open_sequences_ = 0;
}

void IndexedDatasetWriter::write_index(AtomicFile& file) const {
  file.write(std::string_view("MMIDIDX\0\0", 9));
  BufferedOutput out(file);
  out.put(std::uint64_t{1});
  out.put(static_cast<std::uint8_t>(dtype_));
  out.put(static_cast<std::uint64_t>(lengths_.size()));
  out.put(static_cast<std::uint64_t>(document_sequences_.size() + 1));
  for (const std::int32_t length : lengths_) out.put(length);
  std::int64_t offset = 0;
  for (const std::int32_t length : lengths_) {
    out.put(offset);
    offset += length * byte_size(dtype_);
  }
  std::int64_t sequence = 0;
  out.put(sequence);
  for (const std::int32_t count : document_sequences_) {
    sequence += count;
    out.put(sequence);
  }
  out.flush();
}

void IndexedDatasetWriter::finish() {
  PENTATRON_CHECK(bin_ != nullptr, kInternal, "{}: finish() was called before", prefix_);
  PENTATRON_CHECK(open_sequences_ == 0, kInternal, "{}: {} sequences belong to no closed document",
                  prefix_, open_sequences_);
  flush();
  AtomicFile index(index_path(prefix_));
  write_index(index);
  bin_->sync();
  index.sync();
  // Ctrl-C finds the old pair or the new one; and an old index never meets new tokens.
  const HoldStop together;
  remove_tree(index_path(prefix_));
  bin_->commit();
  index.commit();
  bin_.reset();
}

}  // namespace pentatron::datasets
