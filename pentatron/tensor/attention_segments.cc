// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/attention_segments.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron {
namespace {

using Boundaries = std::vector<std::int32_t>;

Tensor boundaries_on(Boundaries values, Device device, const SegmentPadding& padding) {
  // Segments without rows at the end.
  if (padding.segments > 0) values.resize(padding.segments + 1, values.back());
  return tensor::from_vector(values).to(device);
}

}  // namespace

AttentionSegmentsPtr make_segments(std::vector<AttentionSegment> segments,
                                   std::shared_ptr<const SequenceRows> q_rows,
                                   std::shared_ptr<const SequenceRows> k_rows) {
  auto made = std::make_shared<AttentionSegments>();
  for (const AttentionSegment& s : segments) {
    PENTATRON_CHECK(s.q_begin == made->num_q_rows && s.k_begin == made->num_k_rows &&
                        s.q_len >= 0 && s.k_len >= 0,
                    kInternal,
                    "an attention segment of {} queries from row {} and {} keys from row {} does "
                    "not follow rows {} and {}",
                    s.q_len, s.q_begin, s.k_len, s.k_begin, made->num_q_rows, made->num_k_rows);
    made->num_q_rows += s.q_len;
    made->num_k_rows += s.k_len;
    made->max_q_len = std::max(made->max_q_len, s.q_len);
    made->max_k_len = std::max(made->max_k_len, s.k_len);
  }
  made->segments = std::move(segments);
  made->q_rows = std::move(q_rows);
  made->k_rows = std::move(k_rows);
  return made;
}

AttentionSegmentsPtr to_device(const AttentionSegments& segments, Device device,
                               const SegmentPadding& padding) {
  auto made = std::make_shared<AttentionSegments>(segments);
  made->q_boundaries = made->k_boundaries = Tensor();
  if (device.is_cpu()) return made;
  if (padding.segments > 0) {
    PENTATRON_CHECK(static_cast<std::int64_t>(segments.segments.size()) <= padding.segments &&
                        std::max(segments.max_q_len, segments.max_k_len) <= padding.length,
                    kInternal,
                    "{} attention segments of up to {} rows do not fit into {} of up to {}",
                    segments.segments.size(), std::max(segments.max_q_len, segments.max_k_len),
                    padding.segments, padding.length);
    made->max_q_len = made->max_k_len = padding.length;
  }
  Boundaries q, k;
  for (const AttentionSegment& s : segments.segments) {
    q.push_back(static_cast<std::int32_t>(s.q_begin));
    k.push_back(static_cast<std::int32_t>(s.k_begin));
  }
  q.push_back(static_cast<std::int32_t>(segments.num_q_rows));
  k.push_back(static_cast<std::int32_t>(segments.num_k_rows));
  made->q_boundaries = boundaries_on(q, device, padding);
  made->k_boundaries = k == q ? made->q_boundaries : boundaries_on(k, device, padding);
  return made;
}

}  // namespace pentatron
