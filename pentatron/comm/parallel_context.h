// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/comm/backend.h"
#include "pentatron/comm/rank_grid.h"
#include "pentatron/config/config.h"

namespace pentatron::comm {

// This rank's live groups on one grid. Created in main (or a rank's thread), passed down, destroyed
// before the backend. No singleton: two contexts with different grids live in one process. All
// ranks create contexts in the same order with the same arguments; every group of the standard sets
// is made at construction, in a fixed order. A grid of another size than the world: kConfig. An
// axis or factor that the grid has not: kInternal.
class ParallelContext final {
 public:
  ParallelContext(Backend& backend, RankGrid grid, std::string name = "main");
  ~ParallelContext();
  ParallelContext(const ParallelContext&) = delete;
  ParallelContext& operator=(const ParallelContext&) = delete;

  [[nodiscard]] const RankGrid& grid() const { return grid_; }
  [[nodiscard]] Backend& backend() { return backend_; }
  [[nodiscard]] std::int64_t rank() const { return rank_; }
  [[nodiscard]] std::int64_t coordinate(const std::string& axis) const;
  [[nodiscard]] std::int64_t size(const std::string& axis) const;
  // Group of this rank over the named axes or factors (any order, e.g. {"dp", "tp"}); made at
  // construction for every single axis and factor, {"tp","pp"} ("model"), {"dp","cp"}, and the
  // world. Another set: collective on first use, so all ranks must ask in the same order.
  [[nodiscard]] Group& group(const std::vector<std::string>& axes);
  // Makes group({"dp", "tp"}) mean a set of two and not a string of two iterators.
  [[nodiscard]] Group& group(std::initializer_list<std::string> axes) {
    return group(std::vector<std::string>(axes));
  }
  [[nodiscard]] Group& group(const std::string& axis);
  [[nodiscard]] Group& world();
  // First and last pipeline stage with equal other coordinates (tied embeddings); null on other
  // stages and for pp 1.
  [[nodiscard]] Group* tied_ends();
  [[nodiscard]] bool is_first_stage() const;
  [[nodiscard]] bool is_last_stage() const;
  // "rank 3 (tp 1, pp 0)"
  [[nodiscard]] std::string label() const;

 private:
  Group& make(const std::vector<std::string>& axes);

  Backend& backend_;
  RankGrid grid_;
  std::string name_;
  std::int64_t rank_;
  std::map<std::string, std::unique_ptr<Group>> groups_;
  std::unique_ptr<Group> tied_ends_;
};

// The standard grid tp-cp-ep-dp-pp of a run; tp factored into tp_kv (slow) x tp_rep (fast) where a
// kv head is replicated on tp_rep ranks (tp_kv = min(tp, kv heads)). Sizes that do not divide or do
// not multiply to the world: kConfig; expert parallelism: kUnsupported.
[[nodiscard]] RankGrid make_rank_grid(const config::ParallelConfig& parallel,
                                      std::int64_t num_kv_heads);

}  // namespace pentatron::comm
