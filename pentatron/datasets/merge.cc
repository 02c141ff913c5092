// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/timer.h"
#include "pentatron/datasets/indexed_dataset.h"
#include "pentatron/datasets/indexed_dataset_writer.h"

namespace pentatron::datasets {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kCopyBytes = 8 << 20;
constexpr std::uint64_t kProgressBytes = 2ULL << 30;

void add_folder(const fs::path& folder, std::vector<std::string>& prefixes) {
  std::set<std::string> found;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    const fs::path& path = it->path();
    if (!it->is_regular_file()) continue;
    if (path.extension() != ".bin" && path.extension() != ".idx") continue;
    found.insert((folder / path.stem()).string());
  }
  PENTATRON_CHECK(!code, kIo, "cannot list {}: {}", folder.string(), code.message());
  PENTATRON_CHECK(!found.empty(), kConfig, "{} holds no .bin and .idx files", folder.string());
  prefixes.insert(prefixes.end(), found.begin(), found.end());
}

// An index and its tokens, mapped; checked in full.
struct Part {
  explicit Part(std::string name)
      : prefix(std::move(name)),
        index(index_path(prefix)),
        bin(bin_path(prefix)),
        header(validate_index(index.bytes(), bin.bytes().size(), index_path(prefix).string())) {}

  // Bytes of a table of the index.
  [[nodiscard]] std::span<const std::byte> lengths() const {
    return index.bytes().subspan(kIndexHeaderBytes, 4 * sequences());
  }
  [[nodiscard]] std::span<const std::byte> documents() const {
    return index.bytes().subspan(kIndexHeaderBytes + 12 * sequences(),
                                 8 * static_cast<std::size_t>(header.num_document_entries));
  }
  [[nodiscard]] std::span<const std::byte> modes() const {
    return index.bytes().last(header.has_modes ? sequences() : 0);
  }
  [[nodiscard]] std::size_t sequences() const {
    return static_cast<std::size_t>(header.num_sequences);
  }

  std::string prefix;
  MappedFile index;
  MappedFile bin;
  IndexHeader header;
};
using Parts = std::vector<std::unique_ptr<const Part>>;

Parts open_parts(const std::vector<std::string>& prefixes, const MergeOptions& options) {
  Parts parts;
  const Part* with_sequences = nullptr;  // an empty corpus cannot tell whether it has modes
  for (const std::string& prefix : prefixes) {
    parts.push_back(std::make_unique<const Part>(prefix));
    const Part& part = *parts.back();
    const Part& first = *parts.front();
    PENTATRON_CHECK(part.header.dtype == first.header.dtype, kConfig,
                    "{} holds tokens of {}, {} of {}: only corpora of one dtype can be merged; "
                    "make them with tokenizers of the same vocabulary",
                    first.prefix, to_string(first.header.dtype), part.prefix,
                    to_string(part.header.dtype));
    if (part.sequences() == 0) continue;
    if (with_sequences == nullptr) with_sequences = &part;
    PENTATRON_CHECK(part.header.has_modes == with_sequences->header.has_modes, kConfig,
                    "{} {} modes of its sequences (a multimodal corpus), {} {}: they cannot be "
                    "merged",
                    with_sequences->prefix, with_sequences->header.has_modes ? "holds" : "has no",
                    part.prefix, part.header.has_modes ? "does" : "does not");
    PENTATRON_CHECK(part.header.has_modes || !options.multimodal, kConfig,
                    "--multimodal: {} has no modes of its sequences", part.prefix);
  }
  return parts;
}

template <typename T>
T load(std::span<const std::byte> table, std::size_t i) {
  T value;
  std::memcpy(&value, table.data() + i * sizeof(T), sizeof(T));
  return value;
}

// Numbers into a file, in large writes.
class NumberOutput final {
 public:
  explicit NumberOutput(AtomicFile& file) : file_(file) { buffer_.reserve(kBytes + 8); }
  template <typename T>
  void put(T value) {
    const std::size_t at = buffer_.size();
    buffer_.resize(at + sizeof(T));
    std::memcpy(buffer_.data() + at, &value, sizeof(T));
    if (buffer_.size() >= kBytes) flush();
  }
  void flush() {
    if (!buffer_.empty()) file_.write(std::span<const std::byte>(buffer_));
    buffer_.clear();
  }

 private:
  static constexpr std::size_t kBytes = 1 << 20;
  AtomicFile& file_;
  std::vector<std::byte> buffer_;
};

void write_index(AtomicFile& file, const Parts& parts, const MergeStats& stats) {
  file.write(std::string_view("MMIDIDX\0\0", 9));
  NumberOutput out(file);
  out.put(std::uint64_t{1});
  out.put(static_cast<std::uint8_t>(parts.front()->header.dtype));
  out.put(static_cast<std::uint64_t>(stats.sequences));
  out.put(static_cast<std::uint64_t>(stats.documents + 1));
  out.flush();
  for (const auto& part : parts) file.write(part->lengths());
  std::int64_t offset = 0;
  const std::int64_t token_bytes = byte_size(parts.front()->header.dtype);
  for (const auto& part : parts) {
    for (std::size_t i = 0; i < part->sequences(); ++i) {
      out.put(offset);
      offset += load<std::int32_t>(part->lengths(), i) * token_bytes;
    }
  }
  std::int64_t before = 0;  // sequences of the parts before
  out.put(before);
  for (const auto& part : parts) {
    const auto entries = static_cast<std::size_t>(part->header.num_document_entries);
    for (std::size_t i = 1; i < entries; ++i) {
      out.put(before + load<std::int64_t>(part->documents(), i));
    }
    before += part->header.num_sequences;
  }
  out.flush();
  for (const auto& part : parts) file.write(part->modes());
}

class Progress final {
 public:
  Progress(const MergeOptions& options, const Parts& parts) : options_(options) {
    for (const auto& part : parts) all_ += part->bin.bytes().size();
  }
  void add(std::uint64_t bytes, const Part& part) {
    done_ += bytes;
    since_ += bytes;
    if (since_ >= kProgressBytes) tell(part);
  }
  void tell(const Part& part) {
    since_ = 0;
    if (!options_.on_progress) return;
    const double seconds = std::max(timer_.seconds(), 1e-9);
    options_.on_progress(fmt::format(
        "{}: {:.1f} of {:.1f} MB, {:.0f} MB/s", part.prefix, static_cast<double>(done_) / 1e6,
        static_cast<double>(all_) / 1e6, static_cast<double>(done_) / 1e6 / seconds));
  }

 private:
  const MergeOptions& options_;
  Timer timer_;
  std::uint64_t all_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t since_ = 0;
};

}  // namespace

std::vector<std::string> list_corpora(const std::vector<std::string>& inputs) {
  std::vector<std::string> prefixes;
  for (const std::string& input : inputs) {
    if (fs::is_directory(input)) {
      // A prefix may stand beside a folder of its name, which holds its index caches.
      if (fs::is_regular_file(index_path(input))) {
        prefixes.push_back(input);
      } else {
        add_folder(input, prefixes);
      }
    } else {
      prefixes.push_back(corpus_prefix(input));
    }
  }
  std::set<std::string> seen;
  for (const std::string& prefix : prefixes) {
    PENTATRON_CHECK(seen.insert(fs::weakly_canonical(prefix).string()).second, kConfig,
                    "{} stands twice in the input", prefix);
    for (const fs::path& path : {bin_path(prefix), index_path(prefix)}) {
      PENTATRON_CHECK(fs::is_regular_file(path), kIo,
                      "{} is not there: a corpus is {}.bin and {}"
                      ".idx",
                      path.string(), prefix, prefix);
    }
  }
  return prefixes;
}

MergeStats merge_datasets(const MergeOptions& options) {
  const std::vector<std::string> prefixes = list_corpora(options.inputs);
  const fs::path output = fs::weakly_canonical(options.output_prefix);
  for (const std::string& prefix : prefixes) {
    PENTATRON_CHECK(fs::weakly_canonical(prefix) != output, kConfig,
                    "--output-prefix {} is one of the corpora to merge", options.output_prefix);
  }
  if (!options.force) IndexedDatasetWriter::refuse_existing(options.output_prefix);
  const Parts parts = open_parts(prefixes, options);
  MergeStats stats{.corpora = static_cast<std::int64_t>(parts.size())};
  for (const auto& part : parts) {
    stats.sequences += part->header.num_sequences;
    stats.documents += part->header.num_document_entries - 1;
    stats.tokens +=
        static_cast<std::int64_t>(part->bin.bytes().size()) / byte_size(part->header.dtype);
    stats.modes = stats.modes || part->header.has_modes;
  }
  const fs::path folder = bin_path(options.output_prefix).parent_path();
  if (!folder.empty()) create_folders(folder);
  AtomicFile bin(bin_path(options.output_prefix));
  Progress progress(options, parts);
  for (const auto& part : parts) {
    std::span<const std::byte> rest = part->bin.bytes();
    while (!rest.empty()) {
      const auto piece = rest.first(std::min<std::size_t>(rest.size(), kCopyBytes));
      bin.write(piece);
      progress.add(piece.size(), *part);
      rest = rest.subspan(piece.size());
    }
    progress.tell(*part);
  }
  AtomicFile index(index_path(options.output_prefix));
  write_index(index, parts, stats);
  show_together(bin, index, options.output_prefix);
  return stats;
}

}  // namespace pentatron::datasets
