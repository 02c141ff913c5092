// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/sequence_layout.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"
#include "pentatron/tensor/batch.h"
#include "pentatron/tensor/ops.h"

namespace pentatron {
namespace {

using Ids = std::vector<std::int64_t>;

Ids values_of(const Tensor& t) {
  const Tensor wide = t.to(DType::Long).contiguous();
  const auto* begin = wide.const_data_ptr<std::int64_t>();
  return {begin, begin + wide.numel()};
}

TEST(SequenceLayout, FillsInTheUsual) {
  const SequenceLayout layout({.boundaries = {0, 2, 3, 6}, .samples = {0, 3, 6}});
  EXPECT_EQ(layout.num_rows(), 6);
  EXPECT_EQ(layout.rows().token_index, (Ids{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(layout.rows().sample_ids, (Ids{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(layout.rows().positions, layout.rows().token_index);
  EXPECT_EQ(values_of(layout.sample_ids()), layout.rows().sample_ids);
  EXPECT_EQ(layout.max_position(), 2);
  // Samples are the segments where nothing else is said.
  EXPECT_EQ(SequenceLayout({.boundaries = {0, 2, 3}}).rows().positions, (Ids{0, 1, 0}));
  const SequenceLayout empty;
  EXPECT_EQ(empty.num_rows(), 0);
  EXPECT_LT(empty.max_position(), empty.min_position());
}

TEST(SequenceLayout, GivenValuesStay) {
  const SequenceLayout layout({.boundaries = {0, 3},
                               .positions = {7, 5, 9},
                               .sample_ids = {4, 4, 4},
                               .token_index = {20, 21, 22}});
  EXPECT_EQ(values_of(layout.positions()), (Ids{7, 5, 9}));
  EXPECT_EQ(values_of(layout.token_index()), (Ids{20, 21, 22}));
  EXPECT_EQ(values_of(layout.sample_ids()), (Ids{4, 4, 4}));
  EXPECT_EQ(layout.min_position(), 5);
  EXPECT_EQ(layout.max_position(), 9);
}

TEST(SequenceLayout, SegmentsOfQueriesAndKeys) {
  const SequenceLayout layout({.boundaries = {0, 2, 2, 6}});
  const AttentionSegments& self = *layout.attention();
  ASSERT_EQ(self.segments.size(), 3U);
  EXPECT_EQ(self.segments[2].q_begin, 2);
  EXPECT_EQ(self.segments[2].k_len, 4);
  EXPECT_EQ(self.max_q_len, 4);
  EXPECT_EQ(self.num_k_rows, 6);
  const SequenceLayout cross = layout.with_keys(SequenceLayout({.boundaries = {0, 9, 10, 11}}));
  EXPECT_EQ(cross.num_rows(), 6);
  EXPECT_EQ(cross.attention()->num_k_rows, 11);
  EXPECT_EQ(cross.attention()->segments[1].k_len, 1);
  EXPECT_EQ(cross.attention()->segments[2].q_begin, 2);
  EXPECT_EQ(cross.attention()->segments[2].k_begin, 10);
  EXPECT_EQ(cross.attention()->max_k_len, 9);
  EXPECT_EQ(cross.attention()->k_rows->boundaries, (Ids{0, 9, 10, 11}));
  EXPECT_THROW((void)layout.with_keys(SequenceLayout({.boundaries = {0, 9}})), Error);
}

// The plan of attention is made with the batch: every copy, and so every layer, reads the same one.
TEST(SequenceLayout, CopiesShareTheAttentionPlan) {
  Batch batch;
  batch.sequences.emplace(Batch::kText, SequenceRows{.boundaries = {0, 2, 6}});
  const Batch copy = batch;
  EXPECT_EQ(copy.text().attention(), batch.text().attention());
  EXPECT_EQ(to_device(copy, kCpu).text().attention(), batch.text().attention());
  EXPECT_TRUE(copy.text().positions().is_same(batch.text().positions()));
}

TEST(SequenceLayout, RefusesWhatDoesNotFit) {
  for (const SequenceRows& rows :
       {SequenceRows{}, SequenceRows{.boundaries = {1, 2}}, SequenceRows{.boundaries = {0, 3, 2}},
        SequenceRows{.boundaries = {0, 3}, .samples = {0, 2}},
        SequenceRows{.boundaries = {0, 3}, .positions = {0, 1}},
        SequenceRows{.boundaries = {0, 3}, .sample_ids = {0, 1}},
        SequenceRows{.boundaries = {0, 3}, .token_index = {0, 1, 2, 3}}}) {
    EXPECT_THROW(SequenceLayout{rows}, Error);
  }
}

// The meta device has shapes without memory: enough to see who moved and how much was padded.
TEST(SequenceLayout, MovesToADevice) {
  const SequenceLayout host({.boundaries = {0, 2, 6}});
  EXPECT_FALSE(host.attention()->q_boundaries.defined());
  const SequenceLayout moved = host.to(Device("meta"));
  for (const Tensor* t : {&moved.positions(), &moved.sample_ids(), &moved.token_index()}) {
    EXPECT_EQ(t->device(), Device("meta"));
    EXPECT_EQ(t->numel(), 6);
  }
  const AttentionSegments& segments = *moved.attention();
  EXPECT_EQ(segments.q_boundaries.numel(), 3);
  EXPECT_EQ(segments.q_boundaries.scalar_type(), DType::Int);
  EXPECT_TRUE(segments.k_boundaries.is_same(segments.q_boundaries));
  EXPECT_EQ(segments.max_q_len, 4);
  EXPECT_EQ(moved.attention(), moved.to(Device("meta")).attention());
  const SequenceLayout cross = host.with_keys(SequenceLayout({.boundaries = {0, 1, 1}}));
  EXPECT_FALSE(cross.to(Device("meta"))
                   .attention()
                   ->k_boundaries.is_same(cross.to(Device("meta")).attention()->q_boundaries));
  const SequenceLayout padded = host.to(Device("meta"), {.segments = 5, .length = 8});
  EXPECT_EQ(padded.attention()->q_boundaries.numel(), 6);
  EXPECT_EQ(padded.attention()->max_q_len, 8);
  EXPECT_EQ(padded.attention()->segments.size(), 2U);
  EXPECT_THROW((void)host.to(Device("meta"), {.segments = 1, .length = 8}), Error);
  EXPECT_THROW((void)host.to(Device("meta"), {.segments = 5, .length = 3}), Error);
}

TEST(Batch, NamesItsParts) {
  Batch batch;
  batch.sequences.emplace("encoder", SequenceRows{.boundaries = {0, 3}});
  batch.sequences.emplace("decoder", SequenceRows{.boundaries = {0, 2}, .positions = {0, 4}});
  batch.fields.emplace("tokens", tensor::arange(3, DType::Long));
  EXPECT_EQ(batch.sequence("decoder").num_rows(), 2);
  EXPECT_EQ(batch.tokens().numel(), 3);
  try {
    (void)batch.text();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInternal);
    EXPECT_NE(std::string(error.what()).find("'text': it has decoder, encoder"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW((void)batch.labels(), Error);
  EXPECT_NO_THROW(check_positions(batch, 5));
  try {
    check_positions(batch, 4);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_NE(std::string(error.what()).find("token 1 of a batch's decoder has the position 4"),
              std::string::npos)
        << error.what();
  }
  const Batch moved = to_device(batch, Device("meta"));
  EXPECT_EQ(moved.tokens().device(), Device("meta"));
  EXPECT_EQ(moved.sequence("encoder").positions().device(), Device("meta"));
  EXPECT_TRUE(batch.tokens().device().is_cpu());
}

}  // namespace
}  // namespace pentatron
