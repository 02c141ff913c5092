// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/indexed_dataset_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/datasets/indexed_dataset.h"

namespace pentatron::datasets {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;
constexpr std::size_t kPartTokens = 2048;  // checked and narrowed together

template <typename T>
void append(std::vector<std::byte>& buffer, T value) {
  const std::size_t at = buffer.size();
  buffer.resize(at + sizeof(T));
  std::memcpy(buffer.data() + at, &value, sizeof(T));
}

template <typename T>
void append_all(std::vector<std::byte>& buffer, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  buffer.insert(buffer.end(), bytes.begin(), bytes.end());
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

// Loops over a fixed number of tokens become vector instructions.
constexpr std::size_t kLanes = 16;

// Whether all tokens are from 0 to `limit`, which is one less than a power of two.
bool all_within(std::span<const std::int32_t> tokens, std::int32_t limit) {
  std::array<std::uint32_t, kLanes> bits{};
  std::size_t i = 0;
  for (; i + kLanes <= tokens.size(); i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) bits[j] |= static_cast<std::uint32_t>(tokens[i + j]);
  }
  for (; i < tokens.size(); ++i) bits[0] |= static_cast<std::uint32_t>(tokens[i]);
  std::uint32_t all = 0;
  for (const std::uint32_t lane : bits) all |= lane;
  return (all & ~static_cast<std::uint32_t>(limit)) == 0;
}

void narrow_all(std::span<const std::int32_t> tokens, std::uint16_t* narrow) {
  std::size_t i = 0;
  for (; i + kLanes <= tokens.size(); i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) {
      narrow[i + j] = static_cast<std::uint16_t>(tokens[i + j]);
    }
  }
  for (; i < tokens.size(); ++i) narrow[i] = static_cast<std::uint16_t>(tokens[i]);
}

std::filesystem::path unfinished_file(const std::filesystem::path& folder,
                                      const std::string& prefix, std::string_view what) {
  return folder / (std::filesystem::path(prefix).filename().string() + "." + std::string(what));
}

}  // namespace

void show_together(AtomicFile& bin, AtomicFile& index, const std::string& prefix) {
  bin.sync();
  index.sync();
  const HoldStop together;
  remove_tree(index_path(prefix));
  try {
    bin.commit();
    index.commit();
  } catch (const Error&) {
    remove_tree(index_path(prefix));
    remove_tree(bin_path(prefix));
    throw;
  }
}

IndexedDatasetWriter::IndexedDatasetWriter(std::string prefix, TokenDtype dtype, bool overwrite)
    : prefix_(std::move(prefix)),
      dtype_(dtype),
      lengths_(bin_path(prefix_).parent_path()),
      document_sequences_(bin_path(prefix_).parent_path()) {
  prepare_output(overwrite);
  bin_ = std::make_unique<AtomicFile>(bin_path(prefix_));
}

IndexedDatasetWriter::IndexedDatasetWriter(std::string prefix, TokenDtype dtype, bool overwrite,
                                           const std::filesystem::path& unfinished,
                                           const WrittenCounts& counts)
    : prefix_(std::move(prefix)),
      dtype_(dtype),
      unfinished_path_(unfinished_file(unfinished, prefix_, "tokens")),
      lengths_(unfinished_file(unfinished, prefix_, "lengths"), counts.sequences),
      document_sequences_(unfinished_file(unfinished, prefix_, "documents"), counts.documents),
      num_tokens_(counts.tokens) {
  prepare_output(overwrite);
  const auto bytes = static_cast<std::uint64_t>(counts.tokens * byte_size(dtype_));
  unfinished_ = AppendFile::continued(unfinished_path_, bytes);
}

IndexedDatasetWriter::~IndexedDatasetWriter() = default;

void IndexedDatasetWriter::refuse_existing(const std::string& prefix) {
  for (const auto& path : {bin_path(prefix), index_path(prefix)}) {
    PENTATRON_CHECK(
        !std::filesystem::exists(path), kConfig,
        "{} exists already: choose another --output-prefix, or pass --force to replace it",
        path.string());
  }
}

void IndexedDatasetWriter::prepare_output(bool overwrite) const {
  PENTATRON_CHECK(dtype_ == TokenDtype::kUint16 || dtype_ == TokenDtype::kInt32, kInternal,
                  "{}: the writer knows uint16 and int32, not {}", prefix_, to_string(dtype_));
  if (!overwrite) refuse_existing(prefix_);
  const std::filesystem::path folder = bin_path(prefix_).parent_path();
  if (!folder.empty()) create_folders(folder);
}

void IndexedDatasetWriter::flush() {
  if (!buffer_.empty() && bin_ != nullptr) bin_->write(std::span<const std::byte>(buffer_));
  if (!buffer_.empty() && unfinished_) unfinished_->write(buffer_);
  buffer_.clear();
}

WrittenCounts IndexedDatasetWriter::checkpoint() {
  PENTATRON_CHECK(unfinished_ && open_sequences_ == 0, kInternal,
                  "{}: checkpoint() inside a document or without an unfinished folder", prefix_);
  flush();
  unfinished_->sync();
  lengths_.sync();
  document_sequences_.sync();
  return {num_sequences(), num_documents(), num_tokens_};
}

void IndexedDatasetWriter::add_sequence(std::span<const std::int32_t> tokens) {
  constexpr std::size_t kLimit = std::numeric_limits<std::int32_t>::max();
  PENTATRON_CHECK(tokens.size() <= kLimit, kData,
                  "{}: document {} has {} tokens; the format holds at most {} in a sequence",
                  prefix_, num_documents(), tokens.size(), kLimit);
  const std::int32_t limit = dtype_ == TokenDtype::kUint16
                                 ? std::numeric_limits<std::uint16_t>::max()
                                 : std::numeric_limits<std::int32_t>::max();
  for (std::span<const std::int32_t> rest = tokens; !rest.empty();) {
    const std::span<const std::int32_t> part = rest.first(std::min(rest.size(), kPartTokens));
    rest = rest.subspan(part.size());
    if (!all_within(part, limit)) {
      const auto [least, most] = std::minmax_element(part.begin(), part.end());
      PENTATRON_THROW(kData, "{}: document {} has token {}; {} holds 0 to {}", prefix_,
                      num_documents(), *least < 0 ? *least : *most, to_string(dtype_), limit);
    }
    if (dtype_ == TokenDtype::kUint16) {
      std::array<std::uint16_t, kPartTokens> narrow;
      narrow_all(part, narrow.data());
      append_all(buffer_, std::span<const std::uint16_t>(narrow).first(part.size()));
    } else {
      append_all(buffer_, part);
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
  out.put(static_cast<std::uint64_t>(num_sequences()));
  out.put(static_cast<std::uint64_t>(num_documents() + 1));
  lengths_.for_each([&](std::span<const std::int32_t> lengths) {
    for (const std::int32_t length : lengths) out.put(length);
  });
  std::int64_t offset = 0;
  lengths_.for_each([&](std::span<const std::int32_t> lengths) {
    for (const std::int32_t length : lengths) {
      out.put(offset);
      offset += length * byte_size(dtype_);
    }
  });
  std::int64_t sequence = 0;
  out.put(sequence);
  document_sequences_.for_each([&](std::span<const std::int32_t> counts) {
    for (const std::int32_t count : counts) {
      sequence += count;
      out.put(sequence);
    }
  });
  out.flush();
}

void IndexedDatasetWriter::seal() {
  PENTATRON_CHECK(index_ == nullptr, kInternal, "{}: sealed or finished before", prefix_);
  PENTATRON_CHECK(open_sequences_ == 0, kInternal, "{}: {} sequences belong to no closed document",
                  prefix_, open_sequences_);
  flush();
  index_ = std::make_unique<AtomicFile>(index_path(prefix_));
  write_index(*index_);
  if (bin_ != nullptr) {
    bin_->sync();
  } else {
    unfinished_->sync();
  }
  index_->sync();
}

void IndexedDatasetWriter::finish() {
  PENTATRON_CHECK(!finished_, kInternal, "{}: finish() was called before", prefix_);
  if (index_ == nullptr) seal();
  if (bin_ != nullptr) {
    show_together(*bin_, *index_, prefix_);
  } else {
    const HoldStop together;
    remove_tree(index_path(prefix_));
    try {
      rename_durably(unfinished_path_, bin_path(prefix_));
      index_->commit();
    } catch (const Error&) {
      hide();
      throw;
    }
  }
  finished_ = true;
}

void IndexedDatasetWriter::hide() {
  const HoldStop together;
  remove_tree(index_path(prefix_));
  if (bin_ != nullptr) {
    remove_tree(bin_path(prefix_));
  } else if (!std::filesystem::exists(unfinished_path_)) {
    rename_durably(bin_path(prefix_), unfinished_path_);
  }
}

}  // namespace pentatron::datasets
