// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/sequence_cut.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron {
namespace {

using Values = std::vector<std::int64_t>;
using Pairs = std::set<std::pair<std::int64_t, std::int64_t>>;

Values values_of(const Tensor& t) {
  const Tensor host = t.cpu();
  return {host.data_ptr<std::int64_t>(), host.data_ptr<std::int64_t>() + host.numel()};
}

// Two samples of 16 rows; documents go over the borders of chunks.
SequenceLayout packed() {
  return SequenceLayout({.boundaries = {0, 3, 13, 16, 21, 22, 32},
                         .samples = {0, 16, 32},
                         .sample_ids = Values(32, 7)});
}

TEST(SequenceCut, RankHoldsAnEarlyAndALateChunk) {
  const SequenceLayout one({.boundaries = {0, 8}});
  EXPECT_EQ(values_of(cut_sequence(one, {.size = 2, .rank = 0}).cut()->rows), (Values{0, 1, 6, 7}));
  EXPECT_EQ(values_of(cut_sequence(one, {.size = 2, .rank = 1}).cut()->rows), (Values{2, 3, 4, 5}));
  // The early chunk of every sample, then the late one of every sample.
  const SequenceLayout two({.boundaries = {0, 8, 16}, .sample_ids = Values(16, 3)});
  const SequenceLayout share = cut_sequence(two, {.size = 4, .rank = 1});
  EXPECT_EQ(values_of(share.cut()->rows), (Values{1, 9, 6, 14}));
  EXPECT_EQ(share.num_rows(), 4);
  EXPECT_EQ(share.rows().samples, (Values{0, 1, 2, 3, 4}));
}

TEST(SequenceCut, RowsKeepWhatIsKnownOfThem) {
  const SequenceLayout whole({.boundaries = {0, 3, 16},
                              .samples = {0, 8, 16},
                              .positions = {5, 4, 3, 0, 1, 2, 3, 4, 9, 8, 7, 6, 5, 4, 3, 2},
                              .sample_ids = {4, 4, 4, 4, 4, 4, 4, 4, 6, 6, 6, 6, 6, 6, 6, 6}});
  EXPECT_THROW((void)cut_sequence(whole, {.size = 2}), Error) << "a segment over two samples";
  const SequenceLayout fine({.boundaries = {0, 3, 8, 16},
                             .samples = {0, 8, 16},
                             .positions = whole.rows().positions,
                             .sample_ids = whole.rows().sample_ids});
  const SequenceLayout share = cut_sequence(fine, {.size = 2, .rank = 1});
  EXPECT_EQ(values_of(share.cut()->rows), (Values{2, 3, 10, 11, 4, 5, 12, 13}));
  EXPECT_EQ(share.rows().positions, (Values{3, 0, 7, 6, 1, 2, 5, 4}));
  EXPECT_EQ(share.rows().sample_ids, (Values{4, 4, 6, 6, 4, 4, 6, 6}));
  EXPECT_EQ(share.rows().token_index, (Values{2, 3, 2, 3, 4, 5, 4, 5}));
  EXPECT_EQ(share.rows().boundaries, (Values{0, 1, 2, 4, 6, 8}));
}

// Every (query, key) of the plan, in rows of the whole sequence.
Pairs visible(const AttentionSegments& plan, const Values& q_rows, const Values& k_rows,
              bool causal = true) {
  Pairs seen;
  for (const AttentionSegment& s : plan.segments) {
    for (std::int64_t q = 0; q < s.q_len; ++q) {
      for (std::int64_t k = 0; k < s.k_len && (!causal || k <= q + s.k_len - s.q_len); ++k) {
        seen.emplace(q_rows.at(s.q_begin + q), k_rows.at(s.k_begin + k));
      }
    }
  }
  return seen;
}

// Rows of one segment see each other backwards.
Pairs expected(const SequenceLayout& whole) {
  Pairs seen;
  for (const AttentionSegment& s : whole.attention()->segments) {
    for (std::int64_t q = s.q_begin; q < s.q_begin + s.q_len; ++q) {
      for (std::int64_t k = s.k_begin; k <= q; ++k) seen.emplace(q, k);
    }
  }
  return seen;
}

Values half_of(const Values& rows, std::size_t half) {
  const auto middle = static_cast<std::ptrdiff_t>(rows.size() / 2);
  const auto begin = rows.begin() + (half == 0 ? 0 : middle);
  return {begin, begin + middle};
}

// One rank's share of the whole, and which rows it holds.
struct Share {
  std::int64_t size;
  std::int64_t rank;
  SequenceCutPtr cut;
  Values rows;
};
using Add = std::function<void(const Pairs&)>;

// The ranks see together what the whole sees, and nothing twice. `look` gives `add` what one sees.
void expect_whole_is_seen(const SequenceLayout& whole,
                          const std::function<void(const Share&, const Add&)>& look) {
  for (const std::int64_t size : {1, 2, 4, 8}) {
    Pairs seen;
    std::size_t count = 0;
    const Add add = [&](const Pairs& mine) {
      seen.insert(mine.begin(), mine.end());
      count += mine.size();
    };
    for (std::int64_t rank = 0; rank < size; ++rank) {
      const SequenceCutPtr cut = cut_sequence(whole, {.size = size, .rank = rank}).cut();
      look({.size = size, .rank = rank, .cut = cut, .rows = values_of(cut->rows)}, add);
    }
    EXPECT_EQ(seen, expected(whole)) << size << " ranks";
    EXPECT_EQ(count, seen.size()) << "seen twice by " << size << " ranks";
  }
}

TEST(SequenceCut, HalvesSeeWhatTheWholeSees) {
  const SequenceLayout whole = packed();
  Values all(32);
  for (std::int64_t i = 0; i < 32; ++i) all[static_cast<std::size_t>(i)] = i;
  expect_whole_is_seen(whole, [&](const Share& share, const Add& add) {
    for (std::size_t half = 0; half < 2; ++half) {
      const AttentionSegments& plan = *share.cut->halves_with_whole[half];
      const Values q_rows = half_of(share.rows, half);
      EXPECT_EQ(plan.num_q_rows, std::ssize(q_rows));
      EXPECT_EQ(plan.num_k_rows, 32);
      // Dropout is keyed by them.
      for (std::size_t q = 0; q < q_rows.size(); ++q) {
        EXPECT_EQ(plan.q_rows->token_index[q], q_rows[q] % 16);
        EXPECT_EQ(plan.q_rows->sample_ids[q], 7);
      }
      EXPECT_EQ(plan.k_rows, whole.attention()->k_rows);
      add(visible(plan, q_rows, all));
    }
  });
}

TEST(SequenceCut, RingSeesWhatTheWholeSees) {
  const SequenceLayout whole = packed();
  expect_whole_is_seen(whole, [&](const Share& share, const Add& add) {
    ASSERT_EQ(share.cut->ring.size(), static_cast<std::size_t>(share.size));
    for (std::int64_t step = 0; step < share.size; ++step) {
      const std::int64_t other = (share.rank - step + share.size) % share.size;
      const Values theirs =
          values_of(cut_sequence(whole, {.size = share.size, .rank = other}).cut()->rows);
      for (const RingBlock& block : share.cut->ring[static_cast<std::size_t>(step)]) {
        const Values k_rows = half_of(theirs, block.k_half);
        for (std::size_t k = 0; k < k_rows.size(); ++k) {
          EXPECT_EQ(block.rows->k_rows->token_index[k], k_rows[k] % 16);
        }
        const Pairs mine =
            visible(*block.rows, half_of(share.rows, block.q_half), k_rows, block.causal);
        EXPECT_FALSE(mine.empty()) << "a block that nobody needs";
        add(mine);
      }
    }
  });
}

// Without documents every rank has as much to do in every step but the first.
TEST(SequenceCut, RingIsBalanced) {
  const SequenceLayout whole({.boundaries = {0, 32}});
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const SequenceCutPtr cut = cut_sequence(whole, {.size = 4, .rank = rank}).cut();
    EXPECT_EQ(cut->ring[0].size(), 3U);
    for (std::size_t step = 1; step < 4; ++step) EXPECT_EQ(cut->ring[step].size(), 2U) << rank;
  }
  // Documents of a chunk each: other ranks' keys are seen by nobody.
  const SequenceLayout apart({.boundaries = {0, 4, 8, 12, 16, 20, 24, 28, 32}, .samples = {0, 32}});
  const SequenceCutPtr cut = cut_sequence(apart, {.size = 4, .rank = 1}).cut();
  EXPECT_EQ(cut->ring[0].size(), 2U);
  for (std::size_t step = 1; step < 4; ++step) EXPECT_TRUE(cut->ring[step].empty());
}

TEST(SequenceCut, TwoLevels) {
  const SequenceLayout whole = packed();
  for (const std::int64_t outer : {0, 1}) {
    std::vector<Tensor> of_ranks;
    SequenceCutPtr cut;
    for (std::int64_t inner = 0; inner < 2; ++inner) {
      cut = cut_sequence(whole, {.size = 4, .rank = 2 * outer + inner, .inner_size = 2}).cut();
      of_ranks.push_back(cut->rows);
    }
    const SequenceLayout expected = cut_sequence(whole, {.size = 2, .rank = outer});
    ASSERT_NE(cut->inner, nullptr);
    const Tensor ranks = tensor::cat(of_ranks, 0);
    EXPECT_TRUE(ranks.index_select(0, cut->inner->from_ranks).equal(expected.cut()->rows));
    EXPECT_EQ(cut->inner->layout.rows().positions, expected.rows().positions);
    EXPECT_EQ(cut->inner->layout.cut()->ring.size(), 2U);
  }
  EXPECT_EQ(cut_sequence(whole, {.size = 4}).cut()->inner, nullptr);
}

TEST(SequenceCut, RowsOfTheRanksMakeTheWhole) {
  const SequenceLayout whole = packed();
  std::vector<Tensor> of_ranks;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    of_ranks.push_back(cut_sequence(whole, {.size = 4, .rank = rank}).cut()->rows);
  }
  const SequenceCutPtr cut = cut_sequence(whole, {.size = 4, .rank = 2}).cut();
  const Tensor ranks = tensor::cat(of_ranks, 0);
  const Tensor together = ranks.index_select(0, cut->whole.from_ranks);
  EXPECT_TRUE(together.equal(tensor::arange(32, DType::Long)));
  EXPECT_TRUE(together.index_select(0, cut->whole.to_ranks).equal(ranks));
  EXPECT_EQ(cut->whole.layout.attention(), whole.attention());
}

TEST(SequenceCut, BatchesAreCutWithTheirFields) {
  Batch whole;
  whole.sequences.emplace(std::string(Batch::kText), packed());
  whole.fields.emplace("tokens", tensor::arange(32, DType::Long));
  whole.fields.emplace("loss_mask", tensor::arange(32, DType::Float));
  const Batch share = cut_batch(whole, {.size = 4, .rank = 1});
  EXPECT_TRUE(share.tokens().equal(share.text().cut()->rows));
  EXPECT_TRUE(share.loss_mask().equal(share.tokens().to(DType::Float)));
  const Batch moved = to_device(share, Device("meta"));
  const SequenceCut& cut = *moved.text().cut();
  for (const Tensor* t :
       {&cut.rows, &cut.whole.from_ranks, &cut.whole.to_ranks,
        &cut.halves_with_whole[0]->q_boundaries, &cut.halves_with_whole[1]->k_boundaries,
        &cut.ring.at(3).at(0).rows->k_boundaries, &cut.whole.layout.positions()}) {
    EXPECT_EQ(t->device(), Device("meta"));
  }
  whole.fields.emplace("pictures", tensor::zeros({3}, DType::Float));
  EXPECT_THROW((void)cut_batch(whole, {.size = 4, .rank = 1}), Error);
  whole.fields.erase("pictures");
  whole.sequences.emplace("other", packed());
  EXPECT_THROW((void)cut_batch(whole, {.size = 4, .rank = 1}), Error);
}

TEST(SequenceCut, RefusesSamplesThatDoNotDivide) {
  try {
    (void)cut_sequence(SequenceLayout({.boundaries = {0, 8, 20}}), {.size = 4});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_NE(std::string(error.what())
                  .find("a sample of 12 tokens does not divide by 2 x --context-parallel-size 4"),
              std::string::npos)
        << error.what();
  }
  const SequenceLayout share = cut_sequence(packed(), {.size = 2});
  EXPECT_THROW((void)cut_sequence(share, {.size = 2}), Error) << "cut twice";
}

}  // namespace
}  // namespace pentatron
