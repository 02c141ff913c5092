// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/comm/backend.h"
#include "pentatron/comm/places.h"

namespace pentatron::comm {

// This rank's live groups on the grids of a run, over one backend. Created in main (or a rank's
// thread), passed down, destroyed before the backend. No singleton: two contexts with different
// grids live in one process. All ranks create contexts in the same order with the same arguments. A
// grid of another size than the world: kConfig. A name that no grid has: kInternal.
class ParallelContext final {
 public:
  ParallelContext(Backend& backend, Grids grids, std::string name = "main");
  ~ParallelContext();
  ParallelContext(const ParallelContext&) = delete;
  ParallelContext& operator=(const ParallelContext&) = delete;

  [[nodiscard]] const Grids& grids() const { return grids_; }
  // The dense grid.
  [[nodiscard]] const RankGrid& grid() const { return grids_.dense; }
  [[nodiscard]] Backend& backend() { return backend_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::int64_t rank() const { return rank_; }
  [[nodiscard]] const Place& place() const { return place_; }
  [[nodiscard]] std::int64_t coordinate(std::string_view axis) const;
  [[nodiscard]] std::int64_t size(std::string_view axis) const;

  // Group of this rank over the named axes, factors or computed parts of one grid, in any order,
  // e.g. {"dp", "tp"}, "ep", "tp%2". Those of the dense grid's axes, of replicas(), model() and
  // world() are made at construction. Another one is made when it is first asked for, which its
  // members do together and in the same order as for their other groups: in constructors, not in
  // the middle of a step.
  [[nodiscard]] Group& group(const std::vector<std::string>& axes);
  // Makes group({"dp", "tp"}) mean a set of two and not a string of two iterators.
  [[nodiscard]] Group& group(std::initializer_list<std::string> axes) {
    return group(std::vector<std::string>(axes));
  }
  [[nodiscard]] Group& group(std::string_view axis);
  // Another group of the same members, whose operations do not stand in line with the first's. Made
  // when it is first asked for, as any other.
  [[nodiscard]] Group& second_group(std::string_view axis);
  [[nodiscard]] Group& world();

  // By meaning: replica_axes(), model_axes() of the dense grid.
  [[nodiscard]] Group& replicas();
  [[nodiscard]] Group& model();
  // Which samples this rank reads: ranks that differ in other coordinates only read the same ones.
  [[nodiscard]] std::int64_t data_rank() const;
  [[nodiscard]] std::int64_t num_data_ranks() const;

  [[nodiscard]] bool is_first_stage() const;
  [[nodiscard]] bool is_last_stage() const;
  // "rank 3 (tp 1, pp 0)"
  [[nodiscard]] std::string label() const;

 private:
  Group& make(const RankGrid& grid, const std::vector<std::string>& axes, const std::string& key);

  Backend& backend_;
  Grids grids_;
  std::string name_;
  std::int64_t rank_;
  Place place_;
  std::map<std::string, std::unique_ptr<Group>, std::less<>> groups_;
};

}  // namespace pentatron::comm
