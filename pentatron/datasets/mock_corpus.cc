// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/mock_corpus.h"

#include <fmt/format.h>

#include "pentatron/base/error.h"
#include "pentatron/datasets/numpy_generator.h"

namespace pentatron::datasets {

MockCorpus::MockCorpus(std::int64_t vocab_size, std::int64_t eod)
    : vocab_size_(vocab_size), eod_(eod) {
  PENTATRON_CHECK(vocab_size > 0 && eod >= 0 && eod < vocab_size, kInternal,
                  "{}: end-of-document token {} in a vocabulary of {}", name_, eod, vocab_size);
  NumpyGenerator random(0);
  lengths_.reserve(static_cast<std::size_t>(kNumDocuments));
  for (std::int64_t i = 0; i < kNumDocuments; ++i) {
    lengths_.push_back(static_cast<std::int32_t>(random.integer(1, kMaxLength + 1)));
  }
}

std::int32_t MockCorpus::sequence_length(std::int64_t sequence) const {
  PENTATRON_CHECK(sequence >= 0 && sequence < kNumDocuments, kInternal, "{}: sequence {} of {}",
                  name_, sequence, kNumDocuments);
  return lengths_[static_cast<std::size_t>(sequence)];
}

void MockCorpus::read(std::int64_t sequence, std::int64_t offset,
                      std::span<std::int64_t> out) const {
  const std::int64_t length = sequence_length(sequence);
  const auto count = static_cast<std::int64_t>(out.size());
  PENTATRON_CHECK(offset >= 0 && offset <= length && count <= length - offset, kInternal,
                  "{}: tokens {} to {} of sequence {}, which has {}", name_, offset, offset + count,
                  sequence, length);
  std::int64_t place = offset;
  for (std::int64_t& token : out) {
    ++place;
    token = place == length ? eod_ : place % vocab_size_;
  }
}

std::string MockCorpus::identity() const {
  return fmt::format("mock documents {} vocabulary {} end {}", kNumDocuments, vocab_size_, eod_);
}

}  // namespace pentatron::datasets
