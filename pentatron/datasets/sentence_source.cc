// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/sentence_source.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <span>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/sha256.h"
#include "pentatron/datasets/index_file.h"
#include "pentatron/datasets/remote_file.h"

namespace pentatron::datasets {
namespace fs = std::filesystem;
namespace {

std::string folder_of(const SentenceCache& cache, const std::string& class_name) {
  if (!cache.folder.empty()) return cache.folder;
  PENTATRON_CHECK(!is_remote(cache.dataset_path), kConfig,
                  "{} is on a server, where no index can be kept: give --data-cache-path a folder",
                  cache.dataset_path);
  return (fs::path(cache.dataset_path) / "cache" / (class_name + "_indices")).string();
}

}  // namespace

SentenceSource::SentenceSource(std::shared_ptr<const IndexedDataset> corpus,
                               std::shared_ptr<const MaskVocabulary> vocabulary, const Frame& frame)
    : corpus_(std::move(corpus)), vocabulary_(std::move(vocabulary)), seed_(frame.seed) {
  const auto [begin, end] =
      split_range(parse_split(frame.split), frame.part, corpus_->num_documents());
  PENTATRON_CHECK(begin < end, kData,
                  "{} has {} documents, and --split \"{}\" leaves none of them for {}",
                  corpus_->name(), corpus_->num_documents(), frame.split, to_string(frame.part));
  const SentenceIndexOptions options{.document_begin = begin,
                                     .document_end = end,
                                     .num_samples = frame.num_samples,
                                     .max_tokens = frame.max_tokens,
                                     .short_sequence_probability = frame.short_sequence_probability,
                                     .min_sentences = frame.min_sentences,
                                     .seed = frame.seed};
  check_sentence_options(*corpus_, options);
  if (!frame.cache.use) {
    build(options);
    return;
  }
  const std::string text = description(frame);
  const std::string name =
      fmt::format("{}-{}-{}", md5_hex(text), frame.class_name, to_string(frame.part));
  const std::array<CacheEntry, 1> entry = {
      CacheEntry{.what = "index",
                 .stem = fs::path(folder_of(frame.cache, frame.class_name)) / name,
                 .description = text,
                 .made_of = fmt::format("sequences {:08x}", corpus_->layout_checksum()),
                 .arrays = {{.name = "sample_index", .values = &index_, .columns = kColumns}},
                 .log = frame.cache.log}};
  const auto wrong_with = [&]() -> std::optional<std::string> {
    if (index_.kind() != IntegerArray::Kind::kInt64) return "sample index: expected int64";
    if (num_samples() >= frame.num_samples.value_or(1)) return std::nullopt;
    return fmt::format("sample index: {} samples of {}", num_samples(),
                       frame.num_samples.value_or(1));
  };
  static_cast<void>(
      serve_or_build(entry, {.wrong_with = wrong_with,
                             .build = [&](std::span<ArraySink> /*sinks*/) { build(options); }}));
}

std::string SentenceSource::description(const Frame& frame) {
  return fmt::format(
      "{{\n    \"class\": \"{}\",\n    \"dataset_path\": {},\n    \"num_samples\": {},\n"
      "    \"index_split\": \"{}\",\n    \"random_seed\": {},\n    \"max_tokens\": {},\n"
      "    \"split\": {},\n    \"short_sequence_probability\": {},\n    \"min_sentences\": {}\n}}",
      frame.class_name, python_json_text(frame.cache.dataset_path),
      frame.num_samples ? std::to_string(*frame.num_samples) : std::string("null"),
      to_string(frame.part), frame.seed, frame.max_tokens, python_json_text(frame.split),
      python_json_float(frame.short_sequence_probability), frame.min_sentences);
}

void SentenceSource::build(const SentenceIndexOptions& options) {
  std::vector<std::int64_t> rows;
  const std::vector<SentenceSpan> spans = build_sentence_index(*corpus_, options);
  rows.reserve(spans.size() * static_cast<std::size_t>(kColumns));
  for (const SentenceSpan& span : spans) {
    rows.insert(rows.end(), {span.begin, span.begin + span.count, span.target});
  }
  index_ = IntegerArray(std::move(rows));
}

SentenceSpan SentenceSource::span(std::int64_t i) const {
  PENTATRON_CHECK(i >= 0 && i < num_samples(), kInternal, "sample {} of {}", i, num_samples());
  const std::int64_t begin = index_[kColumns * i];
  return {.begin = begin,
          .count = static_cast<std::int32_t>(index_[kColumns * i + 1] - begin),
          .target = static_cast<std::int32_t>(index_[kColumns * i + 2])};
}

NumpyRandomState SentenceSource::random_of(std::int64_t i) const {
  return NumpyRandomState((seed_ + i) % (std::int64_t{1} << 32));
}

std::string SentenceSource::index_hash() const {
  Sha256 hash;
  hash.update(index_.bytes());
  return hash.hex_digest();
}

}  // namespace pentatron::datasets
