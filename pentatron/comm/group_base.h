// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pentatron/comm/group.h"

namespace pentatron::comm {

// What all backends' groups share: identity and the checks of arguments. Wrong arguments are
// kInternal errors that name group, rank, operation and tensors.
class GroupBase : public Group {
 public:
  [[nodiscard]] const std::string& name() const final { return name_; }
  [[nodiscard]] int rank() const final { return rank_; }
  [[nodiscard]] int size() const final { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] const std::vector<std::int64_t>& world_ranks() const final { return ranks_; }

 protected:
  // `ranks` ascending, inside the world, `world_rank` among them.
  GroupBase(std::string name, std::vector<std::int64_t> ranks, std::int64_t world_rank,
            std::int64_t world_size);

  [[nodiscard]] std::int64_t world_rank() const { return ranks_[static_cast<std::size_t>(rank_)]; }
  void check_tensor(std::string_view op, const Tensor& t) const;
  // `whole` holds `size()` times `part`, same dtype.
  void check_whole(std::string_view op, const Tensor& whole, const Tensor& part) const;
  // Splits of dim 0 agree with the tensors; returns the bytes of one row.
  [[nodiscard]] std::int64_t check_splits(const Tensor& out, const Tensor& in,
                                          const std::vector<std::int64_t>& out_splits,
                                          const std::vector<std::int64_t>& in_splits) const;
  // A member other than this one.
  void check_peer(std::string_view op, int peer) const;
  void check_member(std::string_view op, int member) const;
  // "group 'main/tp:0', broadcast on rank 3"
  [[nodiscard]] std::string where(std::string_view op) const;

 private:
  std::string name_;
  std::vector<std::int64_t> ranks_;
  int rank_ = 0;
};

// A Work of something that has happened already.
[[nodiscard]] WorkPtr finished_work();

// A member without peers: acts as if all members held this rank's data (see make_fake_backend).
// With one rank it is the real thing, and every backend uses it for groups of one.
[[nodiscard]] std::unique_ptr<Group> make_local_group(std::string name,
                                                      std::vector<std::int64_t> ranks,
                                                      std::int64_t world_rank,
                                                      std::int64_t world_size);

[[nodiscard]] std::string_view to_string(ReduceOp op);

// A sum becomes an average (ReduceOp::kAverage), in place.
void divide_by_members_(Tensor total, std::int64_t members);

}  // namespace pentatron::comm
