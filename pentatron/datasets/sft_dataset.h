// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/datasets/blend.h"
#include "pentatron/datasets/gpt_sources.h"
#include "pentatron/datasets/line_corpus.h"
#include "pentatron/datasets/sample_source.h"
#include "pentatron/datasets/sft_format.h"
#include "pentatron/datasets/split.h"

namespace pentatron::datasets {

// The sample of the conversations of one line, laid side by side as Megatron's SFTDataset does: cut
// after `sequence_length` rows, or filled with the format's padding. Each conversation is an
// attention segment and counts its positions from 0 (the padding belongs to the last one); a row
// counts in the loss where its label is a token to be learnt, and not padding; `learns_pad`: the
// padding token counts where a conversation has it, as it always does in a raw text.
[[nodiscard]] Sample make_sft_sample(const std::vector<EncodedConversation>& conversations,
                                     std::int64_t sequence_length, std::int32_t pad,
                                     bool learns_pad = false);

// Samples of one part of a file of conversations, a line each, in the order of the lines, again
// from the first where they do not suffice.
class SftDataset final : public SampleSource {
 public:
  struct Options {
    std::string split;
    std::int64_t sequence_length = 0;  // rows of a sample, or with own_lengths at most
    // A sample has the rows of its conversations and is not filled up.
    bool own_lengths = false;
  };
  // `num_samples` none: each line once. kData when the split leaves no line.
  SftDataset(std::shared_ptr<const LineCorpus> corpus, std::shared_ptr<const SftFormat> format,
             const Options& options, DataSplit split, std::optional<std::int64_t> num_samples);

  [[nodiscard]] std::int64_t num_samples() const override { return num_samples_; }
  // With own lengths the first call for a line encodes it; they are remembered.
  [[nodiscard]] std::int64_t length(std::int64_t i) const override;
  // Errors: those of parse_conversations and SftFormat::encode, which name file and line.
  [[nodiscard]] Sample sample(std::int64_t i) const override;
  [[nodiscard]] std::string identity() const override;

 private:
  struct Encoded {
    std::vector<EncodedConversation> conversations;
    std::int64_t rows = 0;
  };
  [[nodiscard]] std::int64_t line_of(std::int64_t i) const;
  [[nodiscard]] Encoded encode(std::int64_t line) const;

  std::shared_ptr<const LineCorpus> corpus_;
  std::shared_ptr<const SftFormat> format_;
  Options options_;
  std::int64_t begin_ = 0;  // lines of this part
  std::int64_t end_ = 0;
  std::int64_t num_samples_ = 0;
  // With own lengths: of each line of this part, 0 where it is not known yet.
  mutable std::vector<std::atomic<std::int32_t>> lengths_;
};

struct SftSourceOptions {
  SftDataset::Options dataset;
  std::shared_ptr<const SftFormat> format;
  MixOptions mix;  // of files
};

// As build_gpt_sources, of files of conversations; no index is cached.
[[nodiscard]] GptSources build_sft_sources(const SftSourceOptions& options,
                                           const SampleCounts& counts);

}  // namespace pentatron::datasets
