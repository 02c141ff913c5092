// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/line_corpus.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/sha256.h"
#include "pentatron/datasets/jsonl.h"

namespace pentatron::datasets {

LineCorpus::LineCorpus(std::string path) : path_(std::move(path)), file_(path_) {
  const std::string_view all = text();
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find('\n', at), all.size());
    PENTATRON_CHECK(end - at <= static_cast<std::size_t>(kMaxLineBytes), kData,
                    "{}: the line at byte {} has {} bytes; at most {} are read", path_, at,
                    end - at, kMaxLineBytes);
    if (is_blank(all.substr(at, end - at))) {
      blanks_.push_back(num_sequences());
    } else {
      begins_.push_back(static_cast<std::int64_t>(at));
    }
    at = end + 1;
  }
  PENTATRON_CHECK(!begins_.empty(), kData, "{} holds no lines", path_);
}

std::string_view LineCorpus::text() const {
  return {reinterpret_cast<const char*>(file_.bytes().data()), file_.bytes().size()};
}

std::string_view LineCorpus::line(std::int64_t i) const {
  PENTATRON_CHECK(i >= 0 && i < num_sequences(), kInternal, "{}: line {} of {}", path_, i,
                  num_sequences());
  const auto begin = static_cast<std::size_t>(begins_[static_cast<std::size_t>(i)]);
  return text().substr(begin, std::min(text().find('\n', begin), text().size()) - begin);
}

std::string LineCorpus::place(std::int64_t i) const {
  const auto before = std::ranges::upper_bound(blanks_, i) - blanks_.begin();
  return fmt::format("{}:{}", path_, i + before + 1);
}

std::int32_t LineCorpus::sequence_length(std::int64_t sequence) const {
  return static_cast<std::int32_t>(line(sequence).size());
}

void LineCorpus::read(std::int64_t sequence, std::int64_t offset,
                      std::span<std::int64_t> out) const {
  const std::string_view bytes = line(sequence);
  PENTATRON_CHECK(offset >= 0 && static_cast<std::size_t>(offset) <= bytes.size() &&
                      out.size() <= bytes.size() - static_cast<std::size_t>(offset),
                  kInternal, "{}: bytes {} to {} of a line of {}", path_, offset,
                  static_cast<std::size_t>(offset) + out.size(), bytes.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<unsigned char>(bytes[static_cast<std::size_t>(offset) + i]);
  }
}

std::string LineCorpus::identity() const {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(begins_)));
  return fmt::format("lines {} bytes {}", hash.hex_digest(), file_.bytes().size());
}

std::string LineCorpus::content(ContentHash how) const {
  return content_hash(
      file_.bytes().size(),
      [this](std::uint64_t offset, std::span<std::byte> out) {
        std::ranges::copy(file_.bytes().subspan(offset, out.size()), out.begin());
      },
      how);
}

}  // namespace pentatron::datasets
