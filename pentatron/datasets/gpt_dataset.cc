// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/gpt_dataset.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/sha256.h"
#include "pentatron/datasets/indexed_dataset.h"
#include "pentatron/datasets/mock_corpus.h"
#include "pentatron/datasets/token_reading.h"

namespace pentatron::datasets {
namespace {

constexpr std::int64_t kSeeds = std::int64_t{1} << 32;  // that order data

std::string hash_bytes(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex_digest();
}

}  // namespace

GptIndexRequest gpt_index_request(const GptDatasetOptions& options, DataSplit split,
                                  std::optional<std::int64_t> num_samples) {
  GptIndexRequest request;
  request.dataset_path = options.data_path;
  request.split_matrix = parse_split(options.split);
  request.split = split;
  request.num_samples = num_samples;
  request.sequence_length = options.sequence_length;
  request.seed = options.seed;
  request.tokenizer = options.tokenizer;
  request.cache_path = options.data_cache_path;
  request.use_cache = !options.mock_data;
  request.quiet = options.quiet;
  request.cache_log = options.cache_log;
  request.keep_partial_sample =
      split == DataSplit::kValid && !options.drop_last_partial_validation_sequence;
  if (options.fim != nullptr) request.class_name = "GPTFIMDataset";
  return request;
}

std::shared_ptr<const Corpus> open_gpt_corpus(const GptDatasetOptions& options) {
  std::shared_ptr<const Corpus> corpus;
  if (options.mock_data) {
    const std::int64_t vocab_size =
        options.tokenizer_vocab_size > 0 ? options.tokenizer_vocab_size : options.vocab_size;
    corpus = std::make_shared<const MockCorpus>(vocab_size, options.eod);
  } else {
    corpus = std::make_shared<const IndexedDataset>(options.data_path,
                                                    IndexedDatasetOptions{options.mmap_bin_files});
  }
  PENTATRON_CHECK(corpus->num_sequences() > 0, kData, "{} holds no documents", corpus->name());
  return corpus;
}

GptDataset::GptDataset(std::shared_ptr<const Corpus> corpus, const GptDatasetOptions& options)
    : corpus_(std::move(corpus)),
      split_(options.split),
      seed_(options.seed),
      sequence_length_(options.sequence_length),
      vocab_size_(options.vocab_size),
      eod_(options.eod),
      masks_(options.masks),
      may_end_short_(!options.drop_last_partial_validation_sequence),
      fim_(options.fim) {
  PENTATRON_CHECK(!may_end_short_ || fim_ == nullptr, kConfig,
                  "a short validation sample has no middle to fill in: drop it, or use plain text");
  PENTATRON_CHECK(vocab_size_ > 0, kInternal, "vocabulary of {} tokens", vocab_size_);
}

GptDataset::GptDataset(std::shared_ptr<const Corpus> corpus, const GptDatasetOptions& options,
                       GptIndex index)
    : GptDataset(std::move(corpus), options) {
  segments_.push_back({.begin = 0, .index = std::move(index)});
}

GptDataset::GptDataset(std::shared_ptr<const Corpus> corpus, const GptDatasetOptions& options,
                       DataSplit split, std::optional<std::int64_t> num_samples)
    : GptDataset(std::move(corpus), options) {
  const std::vector<std::int64_t>& before = options.planned_before;
  PENTATRON_CHECK(
      before.empty() ||
          (num_samples && std::ranges::is_sorted(before) && before.back() <= *num_samples),
      kInternal, "{} samples planned after {}", num_samples.value_or(-1), fmt::join(before, ", "));
  std::vector<std::optional<std::int64_t>> counts(before.begin(), before.end());
  counts.push_back(num_samples);
  for (std::optional<std::int64_t> count : counts) {
    const std::int64_t so_far = segments_.empty() ? 0 : this->num_samples();
    if (!segments_.empty() && *count <= so_far) continue;
    if (count) *count -= so_far;
    GptIndexRequest request = gpt_index_request(options, split, count);
    request.seed = (request.seed + std::ssize(segments_)) % kSeeds;
    segments_.push_back({.begin = so_far, .index = load_or_build_gpt_index(*corpus_, request)});
  }
}

const GptDataset::Segment& GptDataset::segment_of(std::int64_t i) const {
  PENTATRON_CHECK(i >= 0 && i < num_samples(), kInternal, "sample {} of {}", i, num_samples());
  auto segment = segments_.end() - 1;
  while (i < segment->begin) --segment;
  return *segment;
}

GptText GptDataset::text(std::int64_t i) const {
  const auto& [begin, index] = segment_of(i);
  const std::int64_t entry = index.shuffle_index[i - begin];
  std::int64_t place = index.sample_index[2 * entry];
  std::int64_t offset = index.sample_index[2 * entry + 1];
  GptText text;
  text.tokens.resize(static_cast<std::size_t>(sequence_length_ + 1));
  std::span<std::int64_t> rest(text.tokens);
  while (!rest.empty()) {
    if (may_end_short_ && place == index.document_index.size()) {
      std::ranges::fill(rest, GptText::kNoToken);
      break;
    }
    PENTATRON_CHECK(place >= 0 && place < index.document_index.size(), kInternal,
                    "sample {} reads entry {} of {} of the document index", i, place,
                    index.document_index.size());
    const std::int64_t sequence = index.document_index[place];
    const std::int64_t available = corpus_->sequence_length(sequence) - offset;
    const auto count = std::min(rest.size(), static_cast<std::size_t>(available));
    if (offset == 0 && count > 0) {
      text.sequence_starts.push_back(static_cast<std::int64_t>(text.tokens.size() - rest.size()));
    }
    const std::span<std::int64_t> piece = rest.first(count);
    read_tokens(*corpus_, sequence, offset, piece, vocab_size_);
    rest = rest.subspan(count);
    ++place;
    offset = 0;
  }
  return text;
}

Sample GptDataset::sample(std::int64_t i) const {
  GptText whole = text(i);
  if (fim_ != nullptr) whole.tokens = fim_->apply(whole.tokens, seed_, i);
  return make_gpt_sample(whole, eod_, masks_);
}

std::string GptDataset::identity() const {
  nlohmann::json json = {{"corpus", corpus_->identity()},
                         {"split", split_},
                         {"seq_length", sequence_length_},
                         {"seed", seed_},
                         {"eod", eod_},
                         {"reset_position_ids", masks_.reset_position_ids},
                         {"reset_attention_mask", masks_.reset_attention_mask},
                         {"eod_mask_loss", masks_.eod_mask_loss},
                         {"document_index", hash_bytes(index().document_index.bytes())},
                         {"shuffle_index", hash_bytes(index().shuffle_index.bytes())}};
  for (std::size_t k = 1; k < segments_.size(); ++k) {
    const GptIndex& more = segments_[k].index;
    json["appended"].push_back(
        {hash_bytes(more.document_index.bytes()), hash_bytes(more.shuffle_index.bytes())});
  }
  // Where there is none, the text is what checkpoints without these fields hold.
  if (masks_.pad >= 0) json["pad"] = masks_.pad;
  if (may_end_short_) json["keeps_partial_validation_sequence"] = true;
  if (masks_.inter_document) json["inter_document"] = true;
  if (fim_ != nullptr) json["fim"] = fim_->identity();
  return json.dump();
}

}  // namespace pentatron::datasets
