// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/sample_batch.h"

#include <gtest/gtest.h>

#include <memory_resource>
#include <vector>

#include "pentatron/base/error.h"

namespace pentatron::datasets {
namespace {

using Ids = std::vector<std::int64_t>;
using IdField = std::pmr::vector<std::int64_t>;
using WeightField = std::pmr::vector<float>;

// Two samples, of two segments and of one.
SampleBatch two_samples() {
  SampleBatch batch;
  batch.sample_ids = {7, 8};
  batch.sequences["text"] = {
      .samples = {0, 5, 9}, .boundaries = {0, 2, 5, 9}, .positions = {0, 1, 0, 1, 2, 0, 1, 2, 3}};
  batch.fields["tokens"] = IdField{1, 2, 3, 4, 5, 6, 7, 8, 9};
  batch.fields["loss_mask"] = WeightField(9, 1.0F);
  return batch;
}

TEST(PaddedSamples, ASegmentOfItsOwnBehindEachSample) {
  const SampleBatch padded = padded_samples(two_samples(), 4);
  const SampleBatch::Sequence& text = padded.sequences.at("text");
  EXPECT_EQ(text.samples, (Ids{0, 8, 12}));
  EXPECT_EQ(text.boundaries, (Ids{0, 2, 5, 8, 12})) << "the second sample divides already";
  EXPECT_EQ(text.positions, (Ids{0, 1, 0, 1, 2, 0, 1, 2, 0, 1, 2, 3}));
  EXPECT_EQ(std::get<IdField>(padded.fields.at("tokens")),
            (IdField{1, 2, 3, 4, 5, 0, 0, 0, 6, 7, 8, 9}));
  EXPECT_EQ(std::get<WeightField>(padded.fields.at("loss_mask")),
            (WeightField{1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(padded.sample_ids, (Ids{7, 8}));
}

TEST(PaddedSamples, OneLeavesAllAsItIs) {
  const SampleBatch same = padded_samples(two_samples(), 1);
  EXPECT_EQ(same.sequences.at("text").samples, two_samples().sequences.at("text").samples);
  EXPECT_EQ(same.sequences.at("text").boundaries, two_samples().sequences.at("text").boundaries);
  EXPECT_EQ(same.sequences.at("text").positions, two_samples().sequences.at("text").positions);
}

TEST(PaddedSamples, RefusesWhatHasNoRows) {
  SampleBatch odd = two_samples();
  odd.fields["length"] = IdField{5, 4};
  EXPECT_THROW((void)padded_samples(odd, 4), Error);
  SampleBatch two = two_samples();
  two.sequences["image"] = two.sequences["text"];
  EXPECT_THROW((void)padded_samples(two, 4), Error);
  EXPECT_THROW((void)padded_samples(two_samples(), 0), Error);
}

}  // namespace
}  // namespace pentatron::datasets
