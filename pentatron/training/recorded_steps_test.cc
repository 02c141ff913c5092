// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/recorded_steps.h"

#include <gtest/gtest.h>

#include "pentatron/tensor/ops.h"
#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

Batch batch_of(std::vector<std::int64_t> boundaries, std::vector<std::int64_t> samples) {
  Batch batch;
  const std::int64_t rows = boundaries.back();
  batch.sequences.emplace(Batch::kText, SequenceLayout({.boundaries = std::move(boundaries),
                                                        .samples = std::move(samples)}));
  batch.fields["tokens"] = tensor::zeros({rows}, DType::Long, kCpu);
  return batch;
}

config::RunConfig packed(const testing_support::ChangeConfig& change = {}) {
  return testing_support::tiny_config({}, [&](config::RunConfig& c) {
    c.training.precision = "bf16";
    c.model.attention_dropout = 0;
    if (change) change(c);
  });
}

TEST(RecordedSteps, DocumentsArePaddedToFewShapes) {
  const RecordedSteps steps(packed(), kCpu);
  // Whole samples need none.
  EXPECT_EQ(steps.padding(batch_of({0, 8, 16}, {0, 8, 16})).segments, 0);
  const SegmentPadding few = steps.padding(batch_of({0, 3, 8, 16}, {0, 8, 16}));
  const SegmentPadding more = steps.padding(batch_of({0, 1, 2, 3, 16}, {0, 8, 16}));
  EXPECT_GT(few.segments, 4);
  EXPECT_EQ(few.segments, more.segments);
  EXPECT_EQ(few.length, 8);
}

// Where the host goes by segments, another document is another shape.
TEST(RecordedSteps, SegmentsThatTheHostReadsAreNotPadded) {
  const Batch batch = batch_of({0, 3, 8, 16}, {0, 8, 16});
  for (const auto& change : std::vector<testing_support::ChangeConfig>{
           [](config::RunConfig& c) { c.training.precision = "fp32"; },
           [](config::RunConfig& c) { c.model.attention_dropout = 0.1; },
           [](config::RunConfig& c) { c.model.window_size = "4,0"; },
           [](config::RunConfig& c) { c.model.position_embedding_type = "alibi"; },
           [](config::RunConfig& c) { c.model.attn_logit_softcapping = 30.0; },
           [](config::RunConfig& c) { c.logging.log_max_attention_logit = true; }}) {
    EXPECT_EQ(RecordedSteps(packed(change), kCpu).padding(batch).segments, 0);
  }
}

TEST(RecordedSteps, ShapesAreWhatTheHostDecidesBy) {
  const Batch a = batch_of({0, 8, 16}, {0, 8, 16});
  EXPECT_EQ(shape_key({a}), shape_key({batch_of({0, 8, 16}, {0, 8, 16})}));
  EXPECT_NE(shape_key({a}), shape_key({a, a}));
  EXPECT_NE(shape_key({a}), shape_key({batch_of({0, 4, 8, 12, 16}, {0, 8, 16})}));
  EXPECT_NE(shape_key({batch_of({0, 3, 16}, {0, 8, 16})}),
            shape_key({batch_of({0, 4, 16}, {0, 8, 16})}));
  Batch other = a;
  other.fields["tokens"] = other.tokens().to(DType::Int);
  EXPECT_NE(shape_key({a}), shape_key({other}));
}

}  // namespace
}  // namespace pentatron::training
