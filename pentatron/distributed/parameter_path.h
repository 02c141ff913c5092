// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "pentatron/distributed/store_env.h"

namespace pentatron::distributed {

// How a store keeps parameters: whole on every rank, or a shard each.
class ParameterPath {
 public:
  virtual ~ParameterPath() = default;
  // Calls `fill` for every parameter, whose whole storage is there to be written, and keeps what it
  // wrote. Old values need not be there, but for those from before the parameter was bound.
  virtual void fill(const std::function<void(nn::Parameter&)>& fill) = 0;
  // The own ranges hold new values: makes them seen on every rank.
  virtual void publish() = 0;
  // The whole storage of a parameter, at once.
  virtual void provide(nn::Parameter& parameter) = 0;
  // Ends what is under way; whole copies that nobody gives back by an event go.
  virtual void settle() = 0;
  // Flat elements [begin, begin + length) of this rank's own ranges.
  [[nodiscard]] virtual Tensor own_range(std::size_t bucket, std::int64_t begin,
                                         std::int64_t length) const = 0;
  virtual void on_forward_begin(int /*unit*/) {}
  virtual void on_forward_end(int /*unit*/) {}
  virtual void on_backward_begin(int /*unit*/) {}
  virtual void on_backward_end(int /*unit*/) {}
};

// One buffer of whole parameters. Where they are updated in shards, publish() gathers bucket by
// bucket in the order of forward, and waits for all, or (overlap_gather) leaves each bucket to its
// first use.
[[nodiscard]] std::unique_ptr<ParameterPath> make_whole_parameters(StoreEnv& env);

// A shard of each unit. A unit's whole parameters are gathered ahead of its forward and backward,
// while the unit before it runs, and freed after. One that is used elsewhere (a tied weight) is
// gathered there and freed with the unit that used it.
[[nodiscard]] std::unique_ptr<ParameterPath> make_sharded_parameters(StoreEnv& env);

}  // namespace pentatron::distributed
