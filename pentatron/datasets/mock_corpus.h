// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pentatron/datasets/corpus.h"

namespace pentatron::datasets {

// Megatron's made-up documents (--mock-data): 100,000 of them, of n = 1 to 4095 tokens drawn by
// NumPy's default_rng(0); each counts 1, 2, ..., n - 1 modulo the vocabulary and ends with EOD.
class MockCorpus final : public Corpus {
 public:
  static constexpr std::int64_t kNumDocuments = 100'000;
  static constexpr std::int64_t kMaxLength = 4095;

  // `vocab_size`: tokens of the tokenizer, `eod` one of them; else ErrorKind::kInternal.
  MockCorpus(std::int64_t vocab_size, std::int64_t eod);

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] std::int64_t num_sequences() const override { return kNumDocuments; }
  [[nodiscard]] std::int32_t sequence_length(std::int64_t sequence) const override;
  void read(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const override;
  [[nodiscard]] std::string identity() const override;

 private:
  std::string name_ = "--mock-data";
  std::int64_t vocab_size_;
  std::int64_t eod_;
  std::vector<std::int32_t> lengths_;
};

}  // namespace pentatron::datasets
