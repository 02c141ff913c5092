// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/sequence_layout.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/sequence_cut.h"

namespace pentatron {
namespace {

using Values = std::vector<std::int64_t>;

void check_boundaries(const Values& boundaries, const char* what) {
  PENTATRON_CHECK(!boundaries.empty() && boundaries.front() == 0 &&
                      std::is_sorted(boundaries.begin(), boundaries.end()),
                  kInternal, "a sequence's {} must rise from 0; there are {} of them, the last {}",
                  what, boundaries.size(), boundaries.empty() ? -1 : boundaries.back());
}

// The index of each row inside its sample, and the number of its sample.
void count_rows(const Values& samples, Values* token_index, Values* sample_ids) {
  for (std::size_t sample = 0; sample + 1 < samples.size(); ++sample) {
    for (std::int64_t row = samples[sample]; row < samples[sample + 1]; ++row) {
      if (token_index != nullptr) token_index->push_back(row - samples[sample]);
      if (sample_ids != nullptr) sample_ids->push_back(static_cast<std::int64_t>(sample));
    }
  }
}

SequenceRows filled(SequenceRows rows) {
  check_boundaries(rows.boundaries, "segment boundaries");
  const std::int64_t num_rows = rows.boundaries.back();
  if (rows.samples.empty()) rows.samples = rows.boundaries;
  check_boundaries(rows.samples, "sample boundaries");
  PENTATRON_CHECK(rows.samples.back() == num_rows, kInternal,
                  "the samples of a sequence end at row {}, its segments at {}",
                  rows.samples.back(), num_rows);
  const bool counted = rows.token_index.empty();
  const bool numbered = rows.sample_ids.empty();
  if (counted || numbered) {
    count_rows(rows.samples, counted ? &rows.token_index : nullptr,
               numbered ? &rows.sample_ids : nullptr);
  }
  if (rows.positions.empty()) rows.positions = rows.token_index;
  for (const Values* values : {&rows.positions, &rows.sample_ids, &rows.token_index}) {
    PENTATRON_CHECK(static_cast<std::int64_t>(values->size()) == num_rows, kInternal,
                    "a sequence of {} rows has {} positions, {} sample ids and {} token indices",
                    num_rows, rows.positions.size(), rows.sample_ids.size(),
                    rows.token_index.size());
  }
  return rows;
}

// Segment i of the queries sees segment i of the keys.
AttentionSegmentsPtr paired(const std::shared_ptr<const SequenceRows>& q_rows,
                            const std::shared_ptr<const SequenceRows>& k_rows) {
  const Values& q = q_rows->boundaries;
  const Values& k = k_rows->boundaries;
  PENTATRON_CHECK(q.size() == k.size(), kInternal,
                  "attention of {} segments of queries to {} segments of keys", q.size() - 1,
                  k.size() - 1);
  std::vector<AttentionSegment> segments;
  segments.reserve(q.size() - 1);
  for (std::size_t i = 0; i + 1 < q.size(); ++i) {
    segments.push_back({q[i], q[i + 1] - q[i], k[i], k[i + 1] - k[i]});
  }
  return make_segments(std::move(segments), q_rows, k_rows);
}

}  // namespace

SequenceLayout::SequenceLayout(SequenceRows rows)
    : rows_(std::make_shared<const SequenceRows>(filled(std::move(rows)))),
      attention_(paired(rows_, rows_)),
      positions_(tensor::from_vector(rows_->positions)),
      sample_ids_(tensor::from_vector(rows_->sample_ids)),
      token_index_(tensor::from_vector(rows_->token_index)) {
  if (rows_->positions.empty()) return;
  const auto [lowest, highest] =
      std::minmax_element(rows_->positions.begin(), rows_->positions.end());
  min_position_ = *lowest;
  max_position_ = *highest;
}

namespace {

// A plan on a GPU with what its rows are keyed by there.
AttentionSegmentsPtr with_rows(AttentionSegmentsPtr plan, const SequenceLayout& queries,
                               const Tensor& k_places) {
  if (k_places.is_cpu()) return plan;
  auto made = std::make_shared<AttentionSegments>(*plan);
  made->q_sample_ids = queries.sample_ids();
  made->q_places = queries.token_index();
  made->k_places = k_places;
  return made;
}

}  // namespace

SequenceLayout SequenceLayout::with_keys(const SequenceLayout& keys) const {
  const Device device = positions_.device();
  PENTATRON_CHECK(keys.positions_.device() == device, kInternal, "queries on {} and keys on {}",
                  device.str(), keys.positions_.device().str());
  SequenceLayout cross = *this;
  cross.attention_ =
      with_rows(to_device(*paired(rows_, keys.rows_), device), cross, keys.token_index_);
  return cross;
}

SequenceLayout SequenceLayout::with_cut(std::shared_ptr<const SequenceCut> cut) const {
  SequenceLayout other = *this;
  other.cut_ = std::move(cut);
  return other;
}

SequenceLayout SequenceLayout::to(Device device, const SegmentPadding& padding) const {
  if (positions_.device() == device) return *this;
  SequenceLayout moved = *this;
  if (cut_ != nullptr) moved.cut_ = to_device(*cut_, device, padding);
  for (Tensor* t : {&moved.positions_, &moved.sample_ids_, &moved.token_index_}) {
    *t = t->to(device);
  }
  // Of cross attention the keys are another sequence's.
  const bool own_keys = attention_->k_rows == nullptr || attention_->k_rows == rows_;
  moved.attention_ =
      with_rows(to_device(*attention_, device, padding), moved,
                own_keys ? moved.token_index_
                         : tensor::from_vector(attention_->k_rows->token_index).to(device));
  return moved;
}

}  // namespace pentatron
