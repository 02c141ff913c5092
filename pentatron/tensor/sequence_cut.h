// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "pentatron/tensor/batch.h"
#include "pentatron/tensor/sequence_layout.h"

// Context parallelism as data: how the rows of a micro-batch are dealt to ranks. Each sample is cut
// into 2 * size chunks of equal length; rank r holds the chunks r and 2 * size - 1 - r, so that
// under a causal mask all ranks have as much to do (as Megatron-LM cuts it):
//
//   chunk   0   1   2   3   4   5   6   7        size 4
//   rank    0   1   2   3   3   2   1   0
//
// A rank's rows are two halves: the first chunk of every sample, then the second of every sample.
// Rows keep their sample, position and index, so rotary embedding, learned positions, dropout and
// losses need not know of the cut; attention does.
namespace pentatron {
namespace comm {
class Group;
}

// One rank among those that share the sequences of a micro-batch; groups are not touched here.
struct ContextPlace {
  comm::Group* group = nullptr;
  std::int64_t size = 1;
  std::int64_t rank = 0;
  // Two levels: `inner_size` neighbours (a divisor of size) form a group, and ranks with the same
  // place in theirs another one. 1: one level.
  std::int64_t inner_size = 1;
  comm::Group* inner_group = nullptr;
  comm::Group* outer_group = nullptr;
};

// What a group's ranks hold together, and where each row of it stands when their rows lie one rank
// below the other.
struct GatheredRows {
  comm::Group* group = nullptr;
  SequenceLayout layout;
  Tensor from_ranks;  // int64 [rows of layout]: row i is the ranks' row from_ranks[i]
  Tensor to_ranks;    // the inverse: the ranks' row j is row to_ranks[j]
};

// The queries of one half of this rank's rows with the keys of one half of another rank's (or its
// own).
struct RingBlock {
  std::size_t q_half = 0;
  std::size_t k_half = 0;
  bool causal = false;  // the same chunk; else all queries of a segment see all its keys here
  AttentionSegmentsPtr rows;
};

// What a rank's share of a sequence is cut from; on one device, made once a micro-batch. The mask
// is causal inside the segments of the whole sequence.
struct SequenceCut {
  GatheredRows whole;
  Tensor rows;  // int64 [this rank's rows]: which rows of `whole` stand here
  // Each half of this rank's queries with all keys.
  std::array<AttentionSegmentsPtr, 2> halves_with_whole;
  // ring[i]: with the keys of the rank i places before this one; blocks where no query sees a key
  // are left out.
  std::vector<std::vector<RingBlock>> ring;
  // Of two levels: what the inner group's ranks hold together, which is their outer place's share
  // of the whole. Null: one level.
  std::shared_ptr<const GatheredRows> inner;
};
using SequenceCutPtr = std::shared_ptr<const SequenceCut>;

// A sample that does not divide into 2 * size chunks: kConfig with both numbers; segments that go
// over the end of a sample: kInternal.
[[nodiscard]] SequenceLayout cut_sequence(const SequenceLayout& whole, const ContextPlace& place);

// Every sequence and field of the batch, whose fields all have a row for each of the text's; others
// and several sequences: kUnsupported.
[[nodiscard]] Batch cut_batch(const Batch& whole, const ContextPlace& place);

[[nodiscard]] SequenceCutPtr to_device(const SequenceCut& cut, Device device,
                                       const SegmentPadding& padding = {});

}  // namespace pentatron
