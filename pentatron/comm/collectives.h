// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "pentatron/comm/group.h"

// Collectives that are made of a group's own, so that every backend has them, with the same rules:
// all members call them in the same order, tensors are contiguous and equal in dtype and device,
// nothing may be read or written before wait(), arguments that do not fit are kInternal. Rows are
// along dim 0; `rows[i]` are member i's, equal on all members.
namespace pentatron::comm {

// out = the members' `in` one after another; member i has rows[i] of them, which may be none. One
// exchange; until it has ended this rank holds `in` once for each member.
[[nodiscard]] WorkPtr all_gather_uneven(Group& group, Tensor out, Tensor in,
                                        const std::vector<std::int64_t>& rows);
// out = this rank's rows[rank] rows of the reduced `in`. Members' parts are added in order of rank,
// 16-bit floats in fp32 and rounded once, on every backend. Until it has ended this rank holds
// its part once for each member.
[[nodiscard]] WorkPtr reduce_scatter_uneven(Group& group, Tensor out, Tensor in,
                                            const std::vector<std::int64_t>& rows, ReduceOp op);
// `t` of the root becomes the reduced one, with the bits of all_reduce; the others keep theirs.
[[nodiscard]] WorkPtr reduce(Group& group, Tensor t, int root, ReduceOp op);
// The root's `out` = the members' `in` one after another. Others give an undefined `out`.
[[nodiscard]] WorkPtr gather(Group& group, Tensor out, Tensor in, int root,
                             const std::vector<std::int64_t>& rows);
// out = this rank's rows[rank] rows of the root's `in`. Others give an undefined `in`.
[[nodiscard]] WorkPtr scatter(Group& group, Tensor out, Tensor in, int root,
                              const std::vector<std::int64_t>& rows);

// Several tensors of one dtype as one operation, whose latency is paid once; they are copied into
// one buffer and out of it in wait(). Lists of any length, tensors of any shapes, also empty.
[[nodiscard]] WorkPtr all_reduce_coalesced(Group& group, std::vector<Tensor> tensors, ReduceOp op);
// outs[i] as Group::all_gather makes it of ins[i].
[[nodiscard]] WorkPtr all_gather_coalesced(Group& group, std::vector<Tensor> outs,
                                           const std::vector<Tensor>& ins);
// outs[i] as Group::reduce_scatter makes it of ins[i].
[[nodiscard]] WorkPtr reduce_scatter_coalesced(Group& group, std::vector<Tensor> outs,
                                               const std::vector<Tensor>& ins, ReduceOp op);

// A message to or from a member.
struct PairOp {
  enum class Kind { kSend, kReceive };
  Kind kind = Kind::kSend;
  Tensor tensor;
  int peer = 0;
};
// All messages at once: no order of them, on any member, makes two members wait for each other.
// Messages of one direction between two members arrive in the order of the lists.
[[nodiscard]] WorkPtr batch_send_recv(Group& group, const std::vector<PairOp>& ops);

}  // namespace pentatron::comm
