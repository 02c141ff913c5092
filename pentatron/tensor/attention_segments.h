// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pentatron/tensor/tensor.h"

namespace pentatron {

struct SequenceRows;  // tensor/sequence_layout.h

// Fixes the shape of the boundaries on the device and the bound on lengths, so that a recorded step
// can be replayed with other segments: copy their boundaries into the recorded ones.
struct SegmentPadding {
  std::int64_t segments = 0;  // 0: no padding
  std::int64_t length = 0;
};

// Rows of queries that see rows of keys. Causal: query i sees the keys up to i + (k_len - q_len),
// so the last query sees every key; a query that sees none has the output 0.
struct AttentionSegment {
  std::int64_t q_begin = 0;
  std::int64_t q_len = 0;
  std::int64_t k_begin = 0;
  std::int64_t k_len = 0;
  // Rows of the segment between the last key and the last query that are not here (their keys stand
  // elsewhere, tensor/sequence_cut.h): so much further are all queries from all keys.
  std::int64_t apart = 0;
  // Rows of the segment before the first key that are not here, likewise.
  std::int64_t before = 0;
};

// Which rows attend to which: the attention plan of a batch, made once and read by every layer.
// Segments share no row and leave none out: queries and keys follow each other in their order (what
// nobody attends with or to belongs to segments without keys or without queries).
struct AttentionSegments {
  std::vector<AttentionSegment> segments;
  std::int64_t num_q_rows = 0;
  std::int64_t num_k_rows = 0;
  // No segment has more. Where the boundaries are padded (SegmentPadding), its length.
  std::int64_t max_q_len = 0;
  std::int64_t max_k_len = 0;
  // int32 [segments + 1] on the device, longer where padded: rows where segments begin, then the
  // number of rows. The same tensor twice for self-attention; undefined on CPUs, whose kernels read
  // `segments`.
  Tensor q_boundaries;
  Tensor k_boundaries;
  // Sample and place of each row, which dropout is keyed by; null: unknown.
  std::shared_ptr<const SequenceRows> q_rows;
  std::shared_ptr<const SequenceRows> k_rows;
  // The same on a GPU, int64: sample and place of each query, place of each key; undefined:
  // unknown.
  Tensor q_sample_ids, q_places, k_places;
};
using AttentionSegmentsPtr = std::shared_ptr<const AttentionSegments>;

// Segments of queries with keys, by hand: rows of the two and the largest lengths are counted.
// Segments that share rows or leave some out: kInternal.
[[nodiscard]] AttentionSegmentsPtr make_segments(std::vector<AttentionSegment> segments,
                                                 std::shared_ptr<const SequenceRows> q_rows,
                                                 std::shared_ptr<const SequenceRows> k_rows);

// The same with its boundaries on `device`. More or longer segments than the padding has room for:
// kInternal.
[[nodiscard]] AttentionSegmentsPtr to_device(const AttentionSegments& segments, Device device,
                                             const SegmentPadding& padding = {});

}  // namespace pentatron
