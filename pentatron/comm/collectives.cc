// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/collectives.h"

#include <functional>
#include <numeric>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/comm/group_base.h"
#include "pentatron/comm/wait_at_end.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::comm {
namespace {

// Operations under way, and what is to be done once all have ended.
class JoinedWork final : public Work {
 public:
  JoinedWork(std::vector<WorkPtr> works, std::function<void()> finish)
      : works_(std::move(works)), finish_(std::move(finish)) {}
  ~JoinedWork() override { wait_at_end_(*this); }
  void wait() override {
    const auto works = std::exchange(works_, {});
    const auto finish = std::exchange(finish_, nullptr);
    for (const WorkPtr& work : works) work->wait();
    if (finish) finish();
  }
  bool finished() override { return works_.empty() && !finish_; }

 private:
  std::vector<WorkPtr> works_;
  std::function<void()> finish_;
  WaitAtEnd wait_at_end_;
};

WorkPtr join(WorkPtr work, std::function<void()> finish) {
  std::vector<WorkPtr> works;
  works.push_back(std::move(work));
  return std::make_unique<JoinedWork>(std::move(works), std::move(finish));
}

std::string where(const Group& group, std::string_view op) {
  return fmt::format("group '{}', {}", group.name(), op);
}

std::int64_t sum(const std::vector<std::int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

// One number of rows a member, `whole` has their sum and `part` this rank's.
void check_rows(const Group& group, std::string_view op, const Tensor& whole, const Tensor& part,
                const std::vector<std::int64_t>& rows) {
  PENTATRON_CHECK(rows.size() == static_cast<std::size_t>(group.size()), kInternal,
                  "{}: rows of {} members in a group of {}", where(group, op), rows.size(),
                  group.size());
  const std::int64_t mine = rows[static_cast<std::size_t>(group.rank())];
  const auto fits = [](const Tensor& t, std::int64_t count) {
    return !t.defined() || (t.dim() >= 1 && t.size(0) == count);
  };
  PENTATRON_CHECK(fits(whole, sum(rows)) && fits(part, mine), kInternal,
                  "{}: {} rows in all and {} of this rank do not fit {} and {}", where(group, op),
                  sum(rows), mine, whole.defined() ? tensor::describe(whole) : "nothing",
                  part.defined() ? tensor::describe(part) : "nothing");
}

void check_root(const Group& group, std::string_view op, int root) {
  PENTATRON_CHECK(root >= 0 && root < group.size(), kInternal, "{}: root {} of {} members",
                  where(group, op), root, group.size());
}

// No rows like those of `like`.
Tensor no_rows(const Tensor& like) {
  Shape shape = tensor::shape_of(like);
  shape[0] = 0;
  return tensor::empty(shape, like.scalar_type(), like.device());
}

// Members' parts, one after another along a new dim 0, reduced in order of member into `out`.
void reduce_parts(const Tensor& out, const Tensor& parts, ReduceOp op) {
  const DType dtype = out.scalar_type();
  const bool narrow = dtype == DType::BFloat16 || dtype == DType::Half;
  const auto part = [&](std::int64_t member) {
    const Tensor one = parts.select(0, member);
    return narrow ? one.to(DType::Float) : one;
  };
  Tensor total = part(0).clone();
  for (std::int64_t member = 1; member < parts.size(0); ++member) {
    if (op == ReduceOp::kSum || op == ReduceOp::kAverage) total.add_(part(member));
    if (op == ReduceOp::kProduct) total.mul_(part(member));
    if (op == ReduceOp::kMax) total = total.maximum(part(member));
    if (op == ReduceOp::kMin) total = total.minimum(part(member));
  }
  if (op == ReduceOp::kAverage) divide_by_members_(total, parts.size(0));
  out.view({-1}).copy_(total);
}

void check_coalesced(const Group& group, std::string_view op, const std::vector<Tensor>& tensors,
                     DType dtype) {
  for (const Tensor& t : tensors) {
    PENTATRON_CHECK(t.defined() && t.is_contiguous() && t.scalar_type() == dtype, kInternal,
                    "{}: expected contiguous tensors of one dtype, {}, got {}", where(group, op),
                    tensor::dtype_name(dtype),
                    t.defined() ? tensor::describe(t) : "an undefined one");
  }
}

std::int64_t total_elements(const std::vector<Tensor>& tensors) {
  std::int64_t total = 0;
  for (const Tensor& t : tensors) total += t.numel();
  return total;
}

// Calls `copy(place, tensor)` with each tensor's columns of a buffer of `size` rows and the tensor
// as as many rows.
void for_columns(const Tensor& buffer, const std::vector<Tensor>& tensors, std::int64_t size,
                 const std::function<void(const Tensor& place, const Tensor& t)>& copy) {
  std::int64_t begin = 0;
  for (const Tensor& t : tensors) {
    const std::int64_t columns = t.numel() / size;
    if (columns == 0) continue;
    copy(buffer.view({size, -1}).narrow(1, begin, columns), t.view({size, columns}));
    begin += columns;
  }
}

void pack(const Tensor& buffer, const std::vector<Tensor>& tensors, std::int64_t size) {
  for_columns(buffer, tensors, size, [](const Tensor& place, const Tensor& t) { place.copy_(t); });
}

void unpack(const Tensor& buffer, const std::vector<Tensor>& tensors, std::int64_t size) {
  for_columns(buffer, tensors, size, [](const Tensor& place, const Tensor& t) { t.copy_(place); });
}

// outs[i] and ins[i] belong together: `wholes[i]` has `size` times the elements of `parts[i]`.
void check_pairs(const Group& group, std::string_view op, const std::vector<Tensor>& wholes,
                 const std::vector<Tensor>& parts) {
  PENTATRON_CHECK(wholes.size() == parts.size(), kInternal, "{}: {} tensors with {}",
                  where(group, op), wholes.size(), parts.size());
  if (parts.empty()) return;
  check_coalesced(group, op, wholes, parts[0].scalar_type());
  check_coalesced(group, op, parts, parts[0].scalar_type());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    PENTATRON_CHECK(wholes[i].numel() == parts[i].numel() * group.size(), kInternal,
                    "{}: {} is not {} times {}", where(group, op), tensor::describe(wholes[i]),
                    group.size(), tensor::describe(parts[i]));
  }
}

}  // namespace

WorkPtr all_gather_uneven(Group& group, Tensor out, Tensor in,
                          const std::vector<std::int64_t>& rows) {
  check_rows(group, "all_gather_uneven", out, in, rows);
  const std::int64_t count = in.size(0);
  Shape shape = tensor::shape_of(in);
  shape[0] *= group.size();
  const Tensor copies = tensor::empty(shape, in.scalar_type(), in.device());
  for (int member = 0; member < group.size(); ++member) {
    copies.narrow(0, member * count, count).copy_(in);
  }
  const std::vector<std::int64_t> sent(rows.size(), count);
  return group.all_to_all(std::move(out), copies, rows, sent);
}

WorkPtr reduce_scatter_uneven(Group& group, Tensor out, Tensor in,
                              const std::vector<std::int64_t>& rows, ReduceOp op) {
  check_rows(group, "reduce_scatter_uneven", in, out, rows);
  Shape shape = tensor::shape_of(out);
  shape[0] *= group.size();
  const Tensor parts = tensor::empty(shape, in.scalar_type(), in.device());
  const std::vector<std::int64_t> mine(rows.size(), out.size(0));
  WorkPtr work = group.all_to_all(parts, std::move(in), mine, rows);
  return join(std::move(work), [out, parts, op, size = group.size()] {
    if (out.numel() > 0) reduce_parts(out, parts.view({size, -1}), op);
  });
}

WorkPtr reduce(Group& group, Tensor t, int root, ReduceOp op) {
  check_root(group, "reduce", root);
  return group.all_reduce(group.rank() == root ? std::move(t) : t.clone(), op);
}

WorkPtr gather(Group& group, Tensor out, Tensor in, int root,
               const std::vector<std::int64_t>& rows) {
  check_root(group, "gather", root);
  const bool receives = group.rank() == root;
  PENTATRON_CHECK(receives == out.defined(), kInternal, "{}: {}", where(group, "gather"),
                  receives ? "the root has no output" : "an output on a rank that is not the root");
  check_rows(group, "gather", out, in, rows);
  std::vector<std::int64_t> sent(rows.size(), 0);
  sent[static_cast<std::size_t>(root)] = in.size(0);
  if (receives) return group.all_to_all(std::move(out), std::move(in), rows, sent);
  const std::vector<std::int64_t> none(rows.size(), 0);
  const Tensor nothing = no_rows(in);
  return group.all_to_all(nothing, std::move(in), none, sent);
}

WorkPtr scatter(Group& group, Tensor out, Tensor in, int root,
                const std::vector<std::int64_t>& rows) {
  check_root(group, "scatter", root);
  const bool sends = group.rank() == root;
  PENTATRON_CHECK(sends == in.defined(), kInternal, "{}: {}", where(group, "scatter"),
                  sends ? "the root has no input" : "an input on a rank that is not the root");
  check_rows(group, "scatter", in, out, rows);
  std::vector<std::int64_t> received(rows.size(), 0);
  received[static_cast<std::size_t>(root)] = out.size(0);
  if (sends) return group.all_to_all(std::move(out), std::move(in), received, rows);
  const std::vector<std::int64_t> none(rows.size(), 0);
  const Tensor nothing = no_rows(out);
  return group.all_to_all(std::move(out), nothing, received, none);
}

WorkPtr all_reduce_coalesced(Group& group, std::vector<Tensor> tensors, ReduceOp op) {
  if (tensors.empty()) return finished_work();
  check_coalesced(group, "all_reduce_coalesced", tensors, tensors[0].scalar_type());
  const Tensor buffer =
      tensor::empty({total_elements(tensors)}, tensors[0].scalar_type(), tensors[0].device());
  pack(buffer, tensors, 1);
  return join(group.all_reduce(buffer, op),
              [buffer, tensors = std::move(tensors)] { unpack(buffer, tensors, 1); });
}

WorkPtr all_gather_coalesced(Group& group, std::vector<Tensor> outs,
                             const std::vector<Tensor>& ins) {
  check_pairs(group, "all_gather_coalesced", outs, ins);
  if (ins.empty()) return finished_work();
  const std::int64_t total = total_elements(ins);
  const DType dtype = ins[0].scalar_type();
  const Tensor in = tensor::empty({total}, dtype, ins[0].device());
  const Tensor out = tensor::empty({total * group.size()}, dtype, ins[0].device());
  pack(in, ins, 1);
  return join(group.all_gather(out, in),
              [out, outs = std::move(outs), size = group.size()] { unpack(out, outs, size); });
}

WorkPtr reduce_scatter_coalesced(Group& group, std::vector<Tensor> outs,
                                 const std::vector<Tensor>& ins, ReduceOp op) {
  check_pairs(group, "reduce_scatter_coalesced", ins, outs);
  if (ins.empty()) return finished_work();
  const std::int64_t total = total_elements(outs);
  const DType dtype = ins[0].scalar_type();
  const Tensor in = tensor::empty({total * group.size()}, dtype, ins[0].device());
  const Tensor out = tensor::empty({total}, dtype, ins[0].device());
  pack(in, ins, group.size());
  return join(group.reduce_scatter(out, in, op),
              [out, outs = std::move(outs)] { unpack(out, outs, 1); });
}

WorkPtr batch_send_recv(Group& group, const std::vector<PairOp>& ops) {
  std::vector<WorkPtr> works;
  works.reserve(ops.size());
  for (const PairOp& op : ops) {
    works.push_back(op.kind == PairOp::Kind::kSend ? group.send(op.tensor, op.peer)
                                                   : group.recv(op.tensor, op.peer));
  }
  return std::make_unique<JoinedWork>(std::move(works), nullptr);
}

}  // namespace pentatron::comm
