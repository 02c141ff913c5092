// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/group.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "pentatron/base/error.h"
#include "pentatron/comm/group_base.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::comm {
namespace {

constexpr std::int64_t kMaxGatheredBytes = std::int64_t{1} << 30;

class FinishedWork final : public Work {
 public:
  void wait() override {}
  bool finished() override { return true; }
};

Shape with_rows(const Tensor& t, std::int64_t rows) {
  Shape shape = tensor::shape_of(t);
  PENTATRON_CHECK(!shape.empty(), kInternal, "a collective along dim 0 got a scalar");
  shape[0] = rows;
  return shape;
}

}  // namespace

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kAverage:
      return "average";
    case ReduceOp::kProduct:
      return "product";
  }
  return "unknown";
}

void divide_by_members_(Tensor total, std::int64_t members) {
  if (total.is_floating_point()) {
    total.div_(members);
  } else {
    total.div_(members, "trunc");
  }
}

WorkPtr finished_work() { return std::make_unique<FinishedWork>(); }

GroupBase::GroupBase(std::string name, std::vector<std::int64_t> ranks, std::int64_t world_rank,
                     std::int64_t world_size)
    : name_(std::move(name)), ranks_(std::move(ranks)) {
  const auto own = std::find(ranks_.begin(), ranks_.end(), world_rank);
  const bool ascending =
      std::adjacent_find(ranks_.begin(), ranks_.end(), std::greater_equal<>()) == ranks_.end();
  PENTATRON_CHECK(
      own != ranks_.end() && ascending && ranks_.front() >= 0 && ranks_.back() < world_size,
      kInternal, "group '{}': expected ascending ranks below {} with rank {} among them, got [{}]",
      name_, world_size, world_rank, fmt::join(ranks_, ", "));
  rank_ = static_cast<int>(own - ranks_.begin());
}

std::string GroupBase::where(std::string_view op) const {
  return fmt::format("group '{}', {} on rank {}", name_, op, world_rank());
}

void GroupBase::check_tensor(std::string_view op, const Tensor& t) const {
  PENTATRON_CHECK(t.defined(), kInternal, "{}: undefined tensor", where(op));
  PENTATRON_CHECK(t.is_contiguous(), kInternal, "{}: {} is not contiguous", where(op),
                  tensor::describe(t));
}

void GroupBase::check_whole(std::string_view op, const Tensor& whole, const Tensor& part) const {
  check_tensor(op, whole);
  check_tensor(op, part);
  PENTATRON_CHECK(
      whole.scalar_type() == part.scalar_type() && whole.numel() == part.numel() * size(),
      kInternal, "{}: {} is not {} times {}", where(op), tensor::describe(whole), size(),
      tensor::describe(part));
}

std::int64_t GroupBase::check_splits(const Tensor& out, const Tensor& in,
                                     const std::vector<std::int64_t>& out_splits,
                                     const std::vector<std::int64_t>& in_splits) const {
  constexpr std::string_view kOp = "all_to_all";
  check_tensor(kOp, out);
  check_tensor(kOp, in);
  const bool same_rows = out.dim() >= 1 && out.dim() == in.dim() &&
                         out.sizes().slice(1).equals(in.sizes().slice(1)) &&
                         out.scalar_type() == in.scalar_type();
  PENTATRON_CHECK(same_rows, kInternal, "{}: the rows of {} and {} differ", where(kOp),
                  tensor::describe(out), tensor::describe(in));
  const auto check = [&](const char* side, const Tensor& t,
                         const std::vector<std::int64_t>& splits) {
    std::int64_t rows = 0;
    bool valid = splits.size() == world_ranks().size();
    for (std::int64_t split : splits) {
      valid = valid && split >= 0 && split <= t.size(0) - rows;
      rows += valid ? split : 0;
    }
    PENTATRON_CHECK(valid && rows == t.size(0), kInternal,
                    "{}: {} splits [{}] do not cut the {} rows of {} for {} members", where(kOp),
                    side, fmt::join(splits, ", "), t.size(0), tensor::describe(t), size());
  };
  check("output", out, out_splits);
  check("input", in, in_splits);
  std::int64_t row_bytes = tensor::item_bytes(in.scalar_type());
  for (std::int64_t dim = 1; dim < in.dim(); ++dim) row_bytes *= in.size(dim);
  return row_bytes;
}

void GroupBase::check_member(std::string_view op, int member) const {
  PENTATRON_CHECK(member >= 0 && member < size(), kInternal, "{}: member {} of {}", where(op),
                  member, size());
}

void GroupBase::check_peer(std::string_view op, int peer) const {
  check_member(op, peer);
  PENTATRON_CHECK(peer != rank_, kInternal, "{}: the peer is this rank itself", where(op));
}

void all_reduce(Group& group, Tensor t, ReduceOp op) { group.all_reduce(std::move(t), op)->wait(); }

Tensor all_gather(Group& group, const Tensor& in) {
  Tensor out = tensor::empty(with_rows(in, in.dim() > 0 ? in.size(0) * group.size() : 0),
                             in.scalar_type(), in.device());
  group.all_gather(out, in.contiguous())->wait();
  return out;
}

Tensor reduce_scatter(Group& group, const Tensor& in) {
  const std::int64_t rows = in.dim() > 0 ? in.size(0) : 0;
  PENTATRON_CHECK(rows % group.size() == 0, kInternal,
                  "group '{}', reduce_scatter: the {} rows of {} do not divide by {} members",
                  group.name(), rows, tensor::describe(in), group.size());
  Tensor out = tensor::empty(with_rows(in, rows / group.size()), in.scalar_type(), in.device());
  group.reduce_scatter(out, in.contiguous(), ReduceOp::kSum)->wait();
  return out;
}

double all_reduce_value(Group& group, double value, ReduceOp op) {
  const Tensor t = tensor::full({1}, value, DType::Double);
  all_reduce(group, t, op);
  return *t.const_data_ptr<double>();
}

std::vector<std::string> all_gather_bytes(Group& group, const std::string& bytes) {
  const auto own_size = static_cast<std::int64_t>(bytes.size());
  const Tensor sizes_t =
      all_gather(group, tensor::from_vector(std::vector<std::int64_t>{own_size}));
  const std::int64_t* sizes = sizes_t.const_data_ptr<std::int64_t>();
  std::int64_t total = 0;
  std::int64_t largest = 0;
  for (int member = 0; member < group.size(); ++member) {
    PENTATRON_CHECK(sizes[member] >= 0 && sizes[member] <= kMaxGatheredBytes - total, kComm,
                    "group '{}', all_gather_bytes: the members' data exceeds 1 GiB (member {} has "
                    "{} bytes)",
                    group.name(), member, sizes[member]);
    total += sizes[member];
    largest = std::max(largest, sizes[member]);
  }
  // Equal sizes: one gather. Otherwise one broadcast a member, so that nothing is padded.
  Tensor own = tensor::empty({own_size}, DType::Byte);
  if (own_size > 0) std::memcpy(own.mutable_data_ptr(), bytes.data(), bytes.size());
  std::vector<std::string> all(static_cast<std::size_t>(group.size()));
  Tensor gathered;
  if (total == largest * group.size()) gathered = all_gather(group, own);
  for (int member = 0; member < group.size(); ++member) {
    Tensor part = own;
    if (gathered.defined()) {
      part = gathered.narrow(0, member * largest, largest);
    } else {
      if (member != group.rank()) part = tensor::empty({sizes[member]}, DType::Byte);
      group.broadcast(part, member)->wait();
    }
    all[static_cast<std::size_t>(member)].assign(static_cast<const char*>(part.const_data_ptr()),
                                                 static_cast<std::size_t>(sizes[member]));
  }
  return all;
}

}  // namespace pentatron::comm
