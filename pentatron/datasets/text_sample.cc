// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/text_sample.h"

#include <utility>

namespace pentatron::datasets {

Sample text_sample(SampleSequence sequence, std::vector<std::int64_t> tokens,
                   std::vector<std::int64_t> labels, std::vector<float> loss_mask) {
  Sample sample;
  sample.sequences.emplace(Sample::kText, std::move(sequence));
  sample.fields.emplace("tokens", std::move(tokens));
  sample.fields.emplace("labels", std::move(labels));
  sample.fields.emplace("loss_mask", std::move(loss_mask));
  return sample;
}

}  // namespace pentatron::datasets
