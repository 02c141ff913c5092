// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/sft_dataset.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::datasets {

Sample make_sft_sample(const std::vector<EncodedConversation>& conversations,
                       std::int64_t sequence_length, std::int32_t pad, bool learns_pad) {
  // One token more than rows: the label of the last row.
  const auto size = static_cast<std::size_t>(sequence_length) + 1;
  std::vector<std::int64_t> tokens;
  std::vector<bool> learnt;
  SampleSequence sequence;
  std::size_t segment = 0;  // where the last conversation begins
  for (const EncodedConversation& one : conversations) {
    segment = tokens.size();
    tokens.insert(tokens.end(), one.tokens.begin(), one.tokens.end());
    learnt.insert(learnt.end(), one.learnt.begin(), one.learnt.end());
    for (std::size_t i = segment; i < tokens.size(); ++i) {
      sequence.positions.push_back(static_cast<std::int64_t>(i - segment));
    }
    if (tokens.size() >= size) {
      tokens.resize(size - 1);  // the label of the last row is not known
      break;
    }
    if (tokens.size() > segment) {
      sequence.runs.push_back(static_cast<std::int32_t>(tokens.size() - segment));
    }
  }
  PENTATRON_CHECK(!tokens.empty(), kInternal, "a sample without tokens");
  learnt.resize(tokens.size());
  tokens.resize(size, pad);
  learnt.resize(size, false);
  // Padding makes no conversation longer: LongRoPE goes by the largest position.
  if (sequence.positions.size() < size) sequence.positions.resize(size, sequence.positions.back());
  sequence.positions.resize(size - 1);
  // Cut or padded, the last segment reaches to the end.
  std::int64_t before = 0;
  for (const std::int32_t run : sequence.runs) before += run;
  const auto rest = static_cast<std::int32_t>(sequence_length - before);
  const bool cut = segment < size - 1 && before == static_cast<std::int64_t>(segment);
  if (rest > 0 && (cut || sequence.runs.empty())) {
    sequence.runs.push_back(rest);
  } else if (rest > 0) {
    sequence.runs.back() += rest;
  }
  std::vector<std::int64_t> labels(size - 1, 0);
  std::vector<float> loss_mask(size - 1, 0.0F);
  for (std::size_t i = 0; i + 1 < size; ++i) {
    if (!learnt[i + 1] || (tokens[i + 1] == pad && !learns_pad)) continue;
    labels[i] = tokens[i + 1];
    loss_mask[i] = 1.0F;
  }
  tokens.pop_back();
  Sample sample;
  sample.sequences.emplace(Sample::kText, std::move(sequence));
  sample.fields.emplace("tokens", std::move(tokens));
  sample.fields.emplace("labels", std::move(labels));
  sample.fields.emplace("loss_mask", std::move(loss_mask));
  return sample;
}

SftDataset::SftDataset(std::shared_ptr<const LineCorpus> corpus,
                       std::shared_ptr<const SftFormat> format, const Options& options,
                       DataSplit split, std::optional<std::int64_t> num_samples)
    : corpus_(std::move(corpus)), format_(std::move(format)), options_(options) {
  std::tie(begin_, end_) = split_range(parse_split(options.split), split, corpus_->num_sequences());
  PENTATRON_CHECK(begin_ < end_, kData,
                  "{} has {} conversations, and --split \"{}\" leaves none of them for {}",
                  corpus_->name(), corpus_->num_sequences(), options.split, to_string(split));
  num_samples_ = num_samples.value_or(end_ - begin_);
  if (options_.own_lengths) {
    lengths_ = std::vector<std::atomic<std::int32_t>>(static_cast<std::size_t>(end_ - begin_));
  }
}

std::int64_t SftDataset::line_of(std::int64_t i) const {
  PENTATRON_CHECK(i >= 0 && i < num_samples_, kInternal, "sample {} of {}", i, num_samples_);
  return i % (end_ - begin_);
}

SftDataset::Encoded SftDataset::encode(std::int64_t line) const {
  const std::string place = corpus_->place(begin_ + line);
  Encoded encoded;
  std::int64_t tokens = 0;
  for (const Conversation& conversation :
       parse_conversations(corpus_->line(begin_ + line), place)) {
    // What comes after a full sample is cut off.
    if (tokens > options_.sequence_length) break;
    encoded.conversations.push_back(format_->encode(conversation, place));
    tokens += std::ssize(encoded.conversations.back().tokens);
  }
  PENTATRON_CHECK(tokens > 0, kData, "{}: the conversation has no tokens", place);
  encoded.rows =
      options_.own_lengths ? std::min(tokens, options_.sequence_length) : options_.sequence_length;
  return encoded;
}

std::int64_t SftDataset::length(std::int64_t i) const {
  if (!options_.own_lengths) return options_.sequence_length;
  const std::int64_t line = line_of(i);
  std::atomic<std::int32_t>& known = lengths_[static_cast<std::size_t>(line)];
  // Threads that come at once find the same.
  if (known.load(std::memory_order_relaxed) == 0) {
    known.store(static_cast<std::int32_t>(encode(line).rows), std::memory_order_relaxed);
  }
  return known.load(std::memory_order_relaxed);
}

Sample SftDataset::sample(std::int64_t i) const {
  const Encoded encoded = encode(line_of(i));
  return make_sft_sample(encoded.conversations, encoded.rows, format_->pad(),
                         format_->learns_pad());
}

std::string SftDataset::identity() const {
  nlohmann::json json = {{"corpus", corpus_->identity()},
                         {"lines", {begin_, end_}},
                         {"seq_length", options_.sequence_length},
                         {"format", format_->identity()}};
  if (options_.own_lengths) json["own_lengths"] = true;
  return json.dump();
}

GptSources build_sft_sources(const SftSourceOptions& options, const SampleCounts& counts) {
  const auto open = [](const std::string& path) {
    return std::make_shared<const LineCorpus>(path);
  };
  // The order does not depend on the samples asked for, so nothing is to be known of earlier ones.
  const auto make = [&](const MemberRequest& member) -> BlendMember {
    return {.source = std::make_unique<SftDataset>(
                std::static_pointer_cast<const LineCorpus>(member.corpus), options.format,
                options.dataset, member.split, member.count),
            .description = "",
            .older_description = ""};
  };
  return build_sources({.open = open, .make = make}, options.mix, counts);
}

}  // namespace pentatron::datasets
