// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "pentatron/nn/shard_spec.h"

// Maps values stored in one cut of a tensor to another cut of it; knows no files.
namespace pentatron::checkpoint {

// Row-major elements [begin, end) of a box of some tensor.
struct BoxRange {
  const nn::Box& box;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// `count` elements that lie together on both sides, counted from the begin of each range.
struct Run {
  std::int64_t source = 0;
  std::int64_t target = 0;
  std::int64_t count = 0;
};

// Calls `copy` for each run of elements that both hold, each element once. Both boxes belong to the
// same tensor, have as many dimensions and no size 0; the ranges lie inside them. Equal boxes: one
// run.
void for_each_run(const BoxRange& source, const BoxRange& target,
                  const std::function<void(const Run&)>& copy);

}  // namespace pentatron::checkpoint
