// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "pentatron/ops/attention_plan.h"

// Which keys of a segment its queries see: the one place that knows causal masks and windows.
namespace pentatron::ops {

// Rows [begin, end) of a segment's keys; empty where begin == end.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Keys that at least one of the segment's queries [q_begin, q_begin + q_len) sees.
[[nodiscard]] inline KeyRange seen_keys(const AttentionSegment& s, std::int64_t q_begin,
                                        std::int64_t q_len, const AttentionOptions& options) {
  // Where the first query stands in rows of keys, and how far before that its window begins.
  const std::int64_t first = q_begin + (s.k_len - s.q_len);
  const std::int64_t end =
      std::clamp<std::int64_t>(options.causal ? first + q_len : s.k_len, 0, s.k_len);
  if (options.window < 0) return {0, end};
  return {std::clamp<std::int64_t>(first + s.apart - options.window, 0, end), end};
}

// Whether no query of the plan sees a key.
[[nodiscard]] inline bool sees_nothing(const AttentionPlan& plan) {
  return std::all_of(plan.rows->segments.begin(), plan.rows->segments.end(),
                     [&](const AttentionSegment& s) {
                       const KeyRange seen = seen_keys(s, 0, s.q_len, plan.options);
                       return s.q_len == 0 || seen.begin == seen.end;
                     });
}

}  // namespace pentatron::ops
