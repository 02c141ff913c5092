// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/text_lengths.h"

#include <gtest/gtest.h>

#include <vector>

#include "pentatron/tensor/sequence_cut.h"

namespace pentatron {
namespace {

using Values = std::vector<std::int64_t>;

Values values_of(const Tensor& t) {
  const Tensor host = t.cpu().contiguous();
  return {host.const_data_ptr<std::int64_t>(), host.const_data_ptr<std::int64_t>() + host.numel()};
}

Values lengths_of(SequenceRows rows) { return values_of(text_lengths(SequenceLayout(rows))); }

TEST(TextLengths, OfEachSegment) {
  EXPECT_EQ(lengths_of({.boundaries = {0, 2, 3, 6}}), (Values{2, 2, 1, 3, 3, 3}));
  // Segments without rows, at the begin, between others and at the end
  EXPECT_EQ(lengths_of({.boundaries = {0, 0, 2, 2, 2, 3, 3}}), (Values{2, 2, 1}));
  EXPECT_EQ(lengths_of({.boundaries = {0}}), Values{});
}

TEST(TextLengths, GoByPositions) {
  // One token that is read behind nine others
  EXPECT_EQ(lengths_of({.boundaries = {0, 1}, .positions = {9}}), Values{10});
  // Positions that go on from document to document, and ones that begin again inside a segment
  EXPECT_EQ(lengths_of({.boundaries = {0, 2, 4}, .positions = {0, 1, 2, 3}}), (Values{2, 2, 4, 4}));
  EXPECT_EQ(lengths_of({.boundaries = {0, 3, 5}, .positions = {0, 5, 1, 0, 1}}),
            (Values{6, 6, 6, 2, 2}));
  // The largest position so far is an earlier segment's.
  EXPECT_EQ(lengths_of({.boundaries = {0, 1, 3}, .positions = {1000000, 0, 1}}),
            (Values{1000001, 2, 2}));
}

// A rank that holds a few rows of a text knows how long all of it is.
TEST(TextLengths, OfAShareAreThoseOfTheWhole) {
  const SequenceLayout whole({.boundaries = {0, 3, 13, 16, 21, 22, 32}, .samples = {0, 16, 32}});
  const Values all = values_of(text_lengths(whole));
  EXPECT_EQ(all[12], 13);
  for (const std::int64_t size : {2, 4}) {
    for (std::int64_t rank = 0; rank < size; ++rank) {
      const SequenceLayout share = cut_sequence(whole, {.size = size, .rank = rank});
      Values expected;
      for (const std::int64_t row : values_of(share.cut()->rows)) {
        expected.push_back(all[static_cast<std::size_t>(row)]);
      }
      EXPECT_EQ(values_of(text_lengths(share)), expected) << rank << " of " << size;
    }
  }
}

}  // namespace
}  // namespace pentatron
