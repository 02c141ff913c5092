// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pentatron/datasets/integer_array.h"
#include "pentatron/datasets/sample_source.h"

namespace pentatron::datasets {

// The samples of another source in another order (--dataloader-type cyclic): shuffled as a whole,
// by the permutation that Megatron's random sampler draws for its first epoch with one
// data-parallel rank, torch.randperm(num_samples) of seed 0. Megatron's order depends on the number
// of ranks, each of which shuffles a share of its own; this one does not. A run asks its source for
// as many samples as it reads, so there is no second epoch. Takes 4 bytes a sample (8 from 2^32
// samples on).
class CyclicSource final : public SampleSource {
 public:
  explicit CyclicSource(std::unique_ptr<SampleSource> source);

  [[nodiscard]] std::int64_t num_samples() const override { return order_.size(); }
  [[nodiscard]] std::int64_t length(std::int64_t i) const override;
  [[nodiscard]] Sample sample(std::int64_t i) const override;
  [[nodiscard]] std::string identity() const override;

 private:
  [[nodiscard]] std::int64_t place(std::int64_t i) const;

  std::unique_ptr<SampleSource> source_;
  IntegerArray order_;
};

// torch.randperm(size) on the CPU with a generator of this seed, number for number.
[[nodiscard]] IntegerArray torch_permutation(std::int64_t size, std::uint32_t seed);

}  // namespace pentatron::datasets
