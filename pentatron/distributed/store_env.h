// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <utility>

#include "pentatron/base/timer.h"
#include "pentatron/comm/parallel_context.h"
#include "pentatron/distributed/buffer_allocator.h"
#include "pentatron/distributed/store_options.h"
#include "pentatron/distributed/traced_work.h"

namespace pentatron::distributed {

// What the parts of a store share.
struct StoreEnv {
  const FlatLayout& layout;
  comm::ParallelContext& context;
  StoreOptions options;
  PrecisionPolicy policy;
  Device device;
  BufferAllocator& allocator;
  comm::Group& shards;    // over shard_over
  comm::Group& replicas;  // over replicate_over; one rank where the list is empty
  comm::Group& all;       // over both
  Timers* timers = nullptr;

  // A collective on a bucket under way: `launch` calls it and returns its work.
  template <typename Launch>
  void start(TracedWork& running, const char* what, std::size_t bucket, const Tensor& moved,
             Launch launch) const {
    Trace* trace = timers != nullptr ? timers->trace() : nullptr;
    const bool records = trace != nullptr && trace->recording();
    const std::int64_t begin_ns = records ? trace->now_ns() : 0;
    const auto bytes = static_cast<std::int64_t>(moved.nbytes());
    running.start(launch(), trace, records ? fmt::format("{} bucket {}", what, bucket) : "",
                  begin_ns, bytes);
  }

  // This rank's range of a bucket that is cut.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> own_range(std::size_t bucket) const {
    return layout.shard_range(bucket, shards.rank());
  }
};

}  // namespace pentatron::distributed
