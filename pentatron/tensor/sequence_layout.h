// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pentatron/tensor/attention_segments.h"
#include "pentatron/tensor/tensor.h"

namespace pentatron {

struct SequenceCut;  // tensor/sequence_cut.h

// What a data source knows of the rows of a sequence; an empty vector stands for the usual values.
struct SequenceRows {
  // Attention segments: 0 first, the number of rows last.
  std::vector<std::int64_t> boundaries = {};
  // Rows where samples begin, likewise. Empty: the boundaries.
  std::vector<std::int64_t> samples = {};
  // [rows] position ids. Empty: the index inside the sample.
  std::vector<std::int64_t> positions = {};
  // [rows] position of the row's sample in training order. Empty: samples are numbered from 0.
  std::vector<std::int64_t> sample_ids = {};
  // [rows] index of the row inside its sample. Empty: counted.
  std::vector<std::int64_t> token_index = {};
};

// How the rows of one named sequence of a micro-batch are cut into samples and attention segments,
// and which position each has. Activations are [rows, hidden], sample-major: the rows of the first
// sample, then those of the second; a sample may hold several segments. Immutable; copies share
// what they hold.
class SequenceLayout final {
 public:
  SequenceLayout() : SequenceLayout(SequenceRows{.boundaries = {0}}) {}
  // On the CPU. Boundaries that fall, or vectors of other lengths than the rows: kInternal.
  explicit SequenceLayout(SequenceRows rows);

  [[nodiscard]] std::int64_t num_rows() const { return rows_->boundaries.back(); }
  // The host's knowledge, every vector filled.
  [[nodiscard]] const SequenceRows& rows() const { return *rows_; }
  [[nodiscard]] std::int64_t min_position() const { return min_position_; }
  [[nodiscard]] std::int64_t max_position() const { return max_position_; }

  // The same values as int64 [rows] on the layout's device.
  [[nodiscard]] const Tensor& positions() const { return positions_; }
  [[nodiscard]] const Tensor& sample_ids() const { return sample_ids_; }
  [[nodiscard]] const Tensor& token_index() const { return token_index_; }

  // Which of these rows, as queries, see which keys: rows of their own segment, or of with_keys().
  [[nodiscard]] const AttentionSegmentsPtr& attention() const { return attention_; }

  // The layout of cross attention: segment i of these rows sees segment i of `keys`, which lies on
  // the same device. Another number of segments: kInternal.
  [[nodiscard]] SequenceLayout with_keys(const SequenceLayout& keys) const;

  // What these rows are a rank's share of (context parallelism of this micro-batch); null: the
  // sequences are here whole. Attention of rows that were cut goes by the cut, never by
  // attention().
  [[nodiscard]] const std::shared_ptr<const SequenceCut>& cut() const { return cut_; }
  [[nodiscard]] SequenceLayout with_cut(std::shared_ptr<const SequenceCut> cut) const;

  // The same with its tensors on `device`; itself when it is there. More or longer segments than
  // the padding has room for: kInternal.
  [[nodiscard]] SequenceLayout to(Device device, const SegmentPadding& padding = {}) const;

 private:
  std::shared_ptr<const SequenceRows> rows_;
  AttentionSegmentsPtr attention_;
  std::int64_t min_position_ = 0;
  std::int64_t max_position_ = -1;
  Tensor positions_;
  Tensor sample_ids_;
  Tensor token_index_;
  std::shared_ptr<const SequenceCut> cut_;
};

}  // namespace pentatron
