// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/indexed_dataset.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/sha256.h"
#include "pentatron/datasets/block_cache.h"
#include "pentatron/datasets/remote_file.h"

namespace pentatron::datasets {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::size_t kVersionOffset = 9;
constexpr std::size_t kDtypeOffset = 17;
constexpr std::size_t kSequencesOffset = 18;
constexpr std::size_t kDocumentsOffset = 26;

// The tables start at byte 34, so no entry is aligned: every load goes through memcpy.
template <typename T>
T load(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", std::to_integer<int>(b));
  return text;
}

// Of the first bytes of an index of `size` bytes.
IndexHeader read_header(std::span<const std::byte> index, std::uint64_t size,
                        std::string_view name) {
  PENTATRON_CHECK(index.size() >= kIndexHeaderBytes && size >= index.size(), kData,
                  "{}: not an index: expected at least {} bytes, found {}", name, kIndexHeaderBytes,
                  size);
  PENTATRON_CHECK(std::memcmp(index.data(), kMagic.data(), kMagic.size()) == 0, kData,
                  "{}: not an index: magic at byte 0: expected 4d4d49444944580000, found {}", name,
                  hex(index.first(kMagic.size())));
  const auto version = load<std::uint64_t>(index, kVersionOffset);
  PENTATRON_CHECK(version == 1, kData, "{}: version at byte {}: expected 1, found {}", name,
                  kVersionOffset, version);
  const auto code = load<std::uint8_t>(index, kDtypeOffset);
  PENTATRON_CHECK(code >= 1 && code <= 8, kData,
                  "{}: dtype code at byte {}: expected 1 to 8, found {}", name, kDtypeOffset, code);
  const auto num_sequences = load<std::uint64_t>(index, kSequencesOffset);
  const auto num_entries = load<std::uint64_t>(index, kDocumentsOffset);
  // Bounded by the file's size first, so that the products below cannot overflow.
  PENTATRON_CHECK(num_sequences <= size / 12, kData,
                  "{}: number of sequences at byte {}: found {}, too many for a file of {} bytes",
                  name, kSequencesOffset, num_sequences, size);
  PENTATRON_CHECK(
      num_entries >= 1 && num_entries <= size / 8, kData,
      "{}: entries of the document index at byte {}: found {}, expected 1 or more and no "
      "more than fit into a file of {} bytes",
      name, kDocumentsOffset, num_entries, size);
  const std::uint64_t plain = kIndexHeaderBytes + 12 * num_sequences + 8 * num_entries;
  PENTATRON_CHECK(size == plain || size == plain + num_sequences, kData,
                  "{}: size: expected {} bytes for {} sequences and {} document entries ({} with "
                  "modes), found {}",
                  name, plain, num_sequences, num_entries, plain + num_sequences, size);
  IndexHeader header;
  header.dtype = static_cast<TokenDtype>(code);
  header.num_sequences = static_cast<std::int64_t>(num_sequences);
  header.num_document_entries = static_cast<std::int64_t>(num_entries);
  header.has_modes = num_sequences > 0 && size != plain;
  return header;
}

void check_sequences(std::span<const std::byte> index, const IndexHeader& header,
                     std::uint64_t bin_size, std::string_view name) {
  const auto count = static_cast<std::size_t>(header.num_sequences);
  const std::size_t offsets_at = kIndexHeaderBytes + 4 * count;
  const auto token_bytes = static_cast<std::uint64_t>(byte_size(header.dtype));
  std::uint64_t expected = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto length = load<std::int32_t>(index, kIndexHeaderBytes + 4 * i);
    PENTATRON_CHECK(length >= 0, kData,
                    "{}: length of sequence {} at byte {}: expected 0 or more, found {}", name, i,
                    kIndexHeaderBytes + 4 * i, length);
    const auto offset = load<std::int64_t>(index, offsets_at + 8 * i);
    PENTATRON_CHECK(offset >= 0 && static_cast<std::uint64_t>(offset) == expected, kData,
                    "{}: offset of sequence {} at byte {}: expected {}, found {}", name, i,
                    offsets_at + 8 * i, expected, offset);
    // At most 2^31 * 8 is added for every 12 bytes of a file: no overflow below 2^29 TB of index.
    expected += static_cast<std::uint64_t>(length) * token_bytes;
    PENTATRON_CHECK(expected <= bin_size, kData,
                    "{}: sequence {} ends at byte {} of the .bin file, which has {} bytes only",
                    name, i, expected, bin_size);
  }
  PENTATRON_CHECK(expected == bin_size, kData,
                  "{}: the sequences hold {} bytes ({} tokens of {}), but the .bin file has {}",
                  name, expected, expected / token_bytes, to_string(header.dtype), bin_size);
}

void check_documents(std::span<const std::byte> index, const IndexHeader& header,
                     std::string_view name) {
  const std::size_t documents_at =
      kIndexHeaderBytes + 12 * static_cast<std::size_t>(header.num_sequences);
  const auto count = static_cast<std::size_t>(header.num_document_entries);
  std::int64_t previous = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto entry = load<std::int64_t>(index, documents_at + 8 * i);
    PENTATRON_CHECK(i > 0 || entry == 0, kData,
                    "{}: first entry of the document index at byte {}: expected 0, found {}", name,
                    documents_at, entry);
    PENTATRON_CHECK(entry >= previous && entry <= header.num_sequences, kData,
                    "{}: entry {} of the document index at byte {}: expected {} to {}, found {}",
                    name, i, documents_at + 8 * i, previous, header.num_sequences, entry);
    previous = entry;
  }
  PENTATRON_CHECK(
      previous == header.num_sequences, kData,
      "{}: last entry of the document index at byte {}: expected the number of sequences "
      "{}, found {}",
      name, documents_at + 8 * (count - 1), header.num_sequences, previous);
}

template <typename T>
void widen(std::span<const std::byte> bytes, std::span<std::int64_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    // int8 tokens are signed numbers, no characters.
    out[i] = load<T>(bytes, i * sizeof(T));  // NOLINT(bugprone-signed-char-misuse)
  }
}

void widen_tokens(TokenDtype dtype, std::span<const std::byte> bytes, std::span<std::int64_t> out) {
  switch (dtype) {
    case TokenDtype::kUint8:
      return widen<std::uint8_t>(bytes, out);
    case TokenDtype::kInt8:
      return widen<std::int8_t>(bytes, out);
    case TokenDtype::kInt16:
      return widen<std::int16_t>(bytes, out);
    case TokenDtype::kInt32:
      return widen<std::int32_t>(bytes, out);
    case TokenDtype::kInt64:
      return widen<std::int64_t>(bytes, out);
    case TokenDtype::kUint16:
      return widen<std::uint16_t>(bytes, out);
    case TokenDtype::kFloat32:
    case TokenDtype::kFloat64:
      break;
  }
  PENTATRON_THROW(kInternal, "tokens of dtype {} cannot be read", to_string(dtype));
}

}  // namespace

IndexHeader validate_index(std::span<const std::byte> index, std::uint64_t bin_size,
                           std::string_view name) {
  const IndexHeader header = read_header(index, index.size(), name);
  check_sequences(index, header, bin_size, name);
  check_documents(index, header, name);
  return header;
}

std::filesystem::path index_path(const std::string& prefix) { return prefix + ".idx"; }
std::filesystem::path bin_path(const std::string& prefix) { return prefix + ".bin"; }

std::string corpus_prefix(const std::string& word) {
  const bool extended = word.ends_with(".bin") || word.ends_with(".idx");
  // A prefix itself may end so.
  if (!extended || (!is_remote(word) && std::filesystem::exists(index_path(word)))) return word;
  return word.substr(0, word.size() - 4);
}

class IndexedDataset::Bin {
 public:
  virtual ~Bin() = default;
  [[nodiscard]] virtual std::uint64_t size() const = 0;
  virtual void read(std::uint64_t offset, std::uint64_t bytes, TokenDtype dtype,
                    std::span<std::int64_t> out) const = 0;
  virtual void read_bytes(std::uint64_t offset, std::span<std::byte> out) const = 0;
};

class IndexedDataset::MappedBin final : public Bin {
 public:
  explicit MappedBin(const std::filesystem::path& path) : file_(path) {}
  [[nodiscard]] std::uint64_t size() const override { return file_.bytes().size(); }
  void read(std::uint64_t offset, std::uint64_t bytes, TokenDtype dtype,
            std::span<std::int64_t> out) const override {
    widen_tokens(dtype, file_.bytes().subspan(offset, bytes), out);
  }
  void read_bytes(std::uint64_t offset, std::span<std::byte> out) const override {
    std::ranges::copy(file_.bytes().subspan(offset, out.size()), out.begin());
  }

 private:
  MappedFile file_;
};

class IndexedDataset::FileBin final : public Bin {
 public:
  explicit FileBin(std::filesystem::path path)
      // O_NONBLOCK: a pipe without a writer would be waited for before it is refused.
      : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    PENTATRON_CHECK(fd_ >= 0, kIo, "{}: cannot open: {}", path_.string(),
                    std::generic_category().message(errno));
    const off_t end = ::lseek(fd_, 0, SEEK_END);
    if (end < 0) {
      const int error = errno;
      ::close(fd_);
      PENTATRON_THROW(kIo, "{}: cannot tell its size: {}", path_.string(),
                      std::generic_category().message(error));
    }
    size_ = static_cast<std::uint64_t>(end);
  }
  ~FileBin() override { ::close(fd_); }
  FileBin(const FileBin&) = delete;
  FileBin& operator=(const FileBin&) = delete;

  [[nodiscard]] std::uint64_t size() const override { return size_; }
  void read(std::uint64_t offset, std::uint64_t bytes, TokenDtype dtype,
            std::span<std::int64_t> out) const override {
    std::vector<std::byte> buffer(bytes);
    read_bytes(offset, buffer);
    widen_tokens(dtype, buffer, out);
  }
  void read_bytes(std::uint64_t offset, std::span<std::byte> out) const override {
    const std::uint64_t bytes = out.size();
    std::uint64_t done = 0;
    while (done < bytes) {
      const ssize_t count =
          ::pread(fd_, out.data() + done, bytes - done, static_cast<off_t>(offset + done));
      if (count < 0 && errno == EINTR) continue;
      PENTATRON_CHECK(count >= 0, kIo, "{}: cannot read {} bytes at {}: {}", path_.string(), bytes,
                      offset, std::generic_category().message(errno));
      PENTATRON_CHECK(count > 0, kIo,
                      "{}: ended at byte {}, expected {} bytes at {}: it was cut while "
                      "in use",
                      path_.string(), offset + done, bytes, offset);
      done += static_cast<std::uint64_t>(count);
    }
  }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

class IndexedDataset::RemoteBin final : public Bin {
 public:
  explicit RemoteBin(const std::string& url) : source_(open_remote(url)), blocks_(source_) {}
  [[nodiscard]] std::uint64_t size() const override { return source_->size(); }
  void read(std::uint64_t offset, std::uint64_t bytes, TokenDtype dtype,
            std::span<std::int64_t> out) const override {
    std::vector<std::byte> buffer(bytes);
    blocks_.read(offset, buffer);
    widen_tokens(dtype, buffer, out);
  }
  // Past the cache: what is hashed is read once.
  void read_bytes(std::uint64_t offset, std::span<std::byte> out) const override {
    source_->read(offset, out);
  }

 private:
  std::shared_ptr<const RangedSource> source_;
  BlockCache blocks_;
};

// The mapped `.idx`; a type of its own keeps base/file.h out of the header.
class IndexFile final {
 public:
  explicit IndexFile(const std::filesystem::path& path) : file_(path) {}
  explicit IndexFile(MappedFile file) : file_(std::move(file)) {}
  [[nodiscard]] std::span<const std::byte> bytes() const { return file_.bytes(); }

 private:
  MappedFile file_;
};

// The `.idx` of an address: its head is checked before the rest is copied.
std::unique_ptr<IndexFile> open_remote_index(const std::string& url) {
  const std::unique_ptr<RangedSource> source = open_remote(url);
  std::vector<std::byte> head(
      static_cast<std::size_t>(std::min<std::uint64_t>(source->size(), kIndexHeaderBytes)));
  source->read(0, head);
  (void)read_header(head, source->size(), url);
  return std::make_unique<IndexFile>(download(*source));
}

IndexedDataset::IndexedDataset(std::string prefix, IndexedDatasetOptions options)
    : prefix_(std::move(prefix)),
      index_(is_remote(prefix_) ? open_remote_index(prefix_ + ".idx")
                                : std::make_unique<IndexFile>(index_path(prefix_))) {
  const std::filesystem::path bin = bin_path(prefix_);
  if (is_remote(prefix_)) {
    bin_ = std::make_unique<RemoteBin>(prefix_ + ".bin");
  } else if (options.mmap_bin_files) {
    bin_ = std::make_unique<MappedBin>(bin);
  } else {
    bin_ = std::make_unique<FileBin>(bin);
  }
  header_ = validate_index(index_->bytes(), bin_->size(), index_path(prefix_).string());
  PENTATRON_CHECK(header_.dtype != TokenDtype::kFloat32 && header_.dtype != TokenDtype::kFloat64,
                  kUnsupported, "{}: holds numbers of dtype {}; token ids must be integers",
                  bin.string(), to_string(header_.dtype));
  num_tokens_ = static_cast<std::int64_t>(bin_->size()) / byte_size(header_.dtype);
}

IndexedDataset::~IndexedDataset() = default;

std::int32_t IndexedDataset::sequence_length(std::int64_t sequence) const {
  PENTATRON_CHECK(sequence >= 0 && sequence < header_.num_sequences, kInternal,
                  "{}: sequence {} of {}", prefix_, sequence, header_.num_sequences);
  return load<std::int32_t>(index_->bytes(),
                            kIndexHeaderBytes + 4 * static_cast<std::size_t>(sequence));
}

std::pair<std::int64_t, std::int64_t> IndexedDataset::document_range(std::int64_t document) const {
  PENTATRON_CHECK(document >= 0 && document < num_documents(), kInternal, "{}: document {} of {}",
                  prefix_, document, num_documents());
  const std::size_t at = kIndexHeaderBytes + 12 * static_cast<std::size_t>(header_.num_sequences) +
                         8 * static_cast<std::size_t>(document);
  return {load<std::int64_t>(index_->bytes(), at), load<std::int64_t>(index_->bytes(), at + 8)};
}

std::int64_t IndexedDataset::document_of(std::int64_t sequence) const {
  PENTATRON_CHECK(sequence >= 0 && sequence < header_.num_sequences, kInternal,
                  "{}: sequence {} of {}", prefix_, sequence, header_.num_sequences);
  // The last document that begins at or before it: those without a sequence begin there, too.
  std::int64_t first = 0;
  std::int64_t end = num_documents();
  while (end - first > 1) {
    const std::int64_t middle = first + (end - first) / 2;
    (document_range(middle).first <= sequence ? first : end) = middle;
  }
  return first;
}

std::int8_t IndexedDataset::mode(std::int64_t sequence) const {
  PENTATRON_CHECK(has_modes() && sequence >= 0 && sequence < num_sequences(), kInternal,
                  "{}: mode of sequence {} of {}", prefix_, sequence, header_.num_sequences);
  const auto from_end = static_cast<std::size_t>(header_.num_sequences - sequence);
  return load<std::int8_t>(index_->bytes(), index_->bytes().size() - from_end);
}

void IndexedDataset::read(std::int64_t sequence, std::int64_t offset,
                          std::span<std::int64_t> out) const {
  const std::int64_t length = sequence_length(sequence);
  const auto count = static_cast<std::int64_t>(out.size());
  PENTATRON_CHECK(offset >= 0 && offset <= length && count <= length - offset, kInternal,
                  "{}: tokens {} to {} of sequence {}, which has {}", prefix_, offset,
                  offset + count, sequence, length);
  if (count == 0) return;
  const std::size_t at = kIndexHeaderBytes + 4 * static_cast<std::size_t>(header_.num_sequences) +
                         8 * static_cast<std::size_t>(sequence);
  const auto start = static_cast<std::uint64_t>(load<std::int64_t>(index_->bytes(), at));
  const auto token_bytes = static_cast<std::uint64_t>(byte_size(header_.dtype));
  bin_->read(start + static_cast<std::uint64_t>(offset) * token_bytes,
             static_cast<std::uint64_t>(count) * token_bytes, header_.dtype, out);
}

std::string IndexedDataset::identity() const {
  std::call_once(identity_once_, [this] {
    Sha256 hash;
    hash.update(index_->bytes());
    identity_ = fmt::format("indexed {} bin bytes {}", hash.hex_digest(), bin_->size());
  });
  return identity_;
}

std::uint32_t IndexedDataset::layout_checksum() const {
  std::call_once(checksum_once_, [this] {
    const std::uint64_t size = bin_->size();
    checksum_ = crc32c(index_->bytes(), crc32c(std::as_bytes(std::span(&size, 1))));
  });
  return checksum_;
}

const std::byte* IndexedDataset::length_table() const {
  return index_->bytes().data() + kIndexHeaderBytes;
}

std::string IndexedDataset::content(ContentHash how) const {
  return content_hash(
      bin_->size(),
      [this](std::uint64_t offset, std::span<std::byte> out) { bin_->read_bytes(offset, out); },
      how);
}

}  // namespace pentatron::datasets
