// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pentatron/tensor/tensor.h"

namespace pentatron::comm {

// kAverage: the sum by the number of members, of whole numbers without what is behind the point.
enum class ReduceOp { kSum, kMax, kMin, kAverage, kProduct };

// A started operation. wait() must be called (destroying an unfinished one waits); on CUDA it makes
// the current stream wait. Tensors given to the operation live until then.
class Work {
 public:
  virtual ~Work() = default;
  virtual void wait() = 0;
  // True when wait() has nothing left to wait for; false when it has or when the backend cannot
  // tell (gloo's sends and receives, operations of a recorded step). Never blocks.
  [[nodiscard]] virtual bool finished() { return false; }
};
using WorkPtr = std::unique_ptr<Work>;

// Ranks that communicate, with NCCL's semantics: every member calls the same operations in
// the same order; a send ends when it was received; tensors are contiguous, sizes and dtypes agree.
// A failure of any member is an ErrorKind::kComm error in all of them, naming the group, the
// operation and the rank; arguments that do not fit are kInternal. A group of one rank does nothing
// but copy.
class Group {
 public:
  virtual ~Group() = default;

  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual int rank() const = 0;  // inside the group
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual const std::vector<std::int64_t>& world_ranks() const = 0;

  [[nodiscard]] virtual WorkPtr all_reduce(Tensor t, ReduceOp op) = 0;  // in place
  // out = the members' `in` one after another along dim 0 (out.numel == size * in.numel).
  [[nodiscard]] virtual WorkPtr all_gather(Tensor out, Tensor in) = 0;
  // out = this rank's slice (along dim 0) of the reduced `in`.
  [[nodiscard]] virtual WorkPtr reduce_scatter(Tensor out, Tensor in, ReduceOp op) = 0;
  // Rows of `in` cut by in_splits go to the members in order; rows from member i fill out_splits[i]
  // rows of `out`.
  [[nodiscard]] virtual WorkPtr all_to_all(Tensor out, Tensor in,
                                           std::vector<std::int64_t> out_splits,
                                           std::vector<std::int64_t> in_splits) = 0;
  // In place; `root` and `peer` are ranks inside the group.
  [[nodiscard]] virtual WorkPtr broadcast(Tensor t, int root) = 0;
  [[nodiscard]] virtual WorkPtr send(Tensor t, int peer) = 0;
  [[nodiscard]] virtual WorkPtr recv(Tensor t, int peer) = 0;
  // For a message that comes only after more of this rank's own work: started when it is waited
  // for, in the order of these calls, but without waiting for what the current stream is given in
  // between, so that it overlaps with that. A receive that is under way occupies a GPU until the
  // message comes, and whatever waits for the whole device (the first use of a kernel, freed
  // memory) would wait for the peer, which may wait for this rank.
  [[nodiscard]] virtual WorkPtr recv_later(Tensor t, int peer) { return recv(std::move(t), peer); }
  // Makes ready what sends to and receives of GPU tensors from these members need, which else their
  // first use does: in the middle of a step a GPU that waits for a message could hold that up for
  // ever. Sender and receiver both name the pair; waits until both have.
  virtual void connect(const std::vector<int>& /*send_to*/,
                       const std::vector<int>& /*receive_from*/) {}
  virtual void barrier() = 0;
};

// Blocking forms.
void all_reduce(Group& group, Tensor t, ReduceOp op = ReduceOp::kSum);
[[nodiscard]] Tensor all_gather(Group& group, const Tensor& in);  // new tensor, dim 0 times size
[[nodiscard]] Tensor reduce_scatter(Group& group,
                                    const Tensor& in);  // new tensor, dim 0 divided by size
// Small host values (fp64), e.g. agreement on counts and flags.
[[nodiscard]] double all_reduce_value(Group& group, double value, ReduceOp op = ReduceOp::kSum);
// Every member's bytes, in order of rank (sizes may differ; more than 1 GiB together: kComm).
[[nodiscard]] std::vector<std::string> all_gather_bytes(Group& group, const std::string& bytes);

}  // namespace pentatron::comm
