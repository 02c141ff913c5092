// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "pentatron/comm/backend.h"
#include "pentatron/comm/parallel_context.h"
#include "pentatron/comm/tie_groups.h"
#include "pentatron/tensor/ops.h"

// What every backend must do, for tensors of one device, as one function over a Backend: run by
// comm_test on threads, on the single and the fake backend, and by comm_worker in processes. A
// broken expectation throws. Expected values come from formulas over (rank, index), never from a
// backend.
namespace pentatron::comm::conformance {

inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("conformance: " + what);
}

// Small integers, exact in every dtype, different by rank and position.
inline double value_at(std::int64_t rank, std::int64_t index) {
  return static_cast<double>((index * 7 + rank * 5) % 13 - 6);
}

inline Tensor filled(const Shape& shape, DType dtype, Device device,
                     const std::function<double(std::int64_t)>& f) {
  const std::int64_t count = tensor::num_elements(shape);
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(f(i));
  if (count == 0) return tensor::empty(shape, dtype, device);
  return tensor::from_vector(values).to(dtype).view(shape).to(device);
}

inline void require_equal(const Tensor& t, const std::function<double(std::int64_t)>& f,
                          const std::string& what) {
  const Tensor wide = t.cpu().to(DType::Double).contiguous();
  const auto* data = static_cast<const double*>(wide.const_data_ptr());
  for (std::int64_t i = 0; i < wide.numel(); ++i) {
    require(data[i] == f(i),
            fmt::format("{}: element {} is {}, expected {}", what, i, data[i], f(i)));
  }
}

// kLikeThisRank: the fake backend, where all members hold what this rank holds and receives are
// zeros.
enum class Peers { kReal, kLikeThisRank };

struct Subject {
  Device device = Device("cpu");
  bool rounds_once = true;  // a reduction of 16-bit floats rounds its end alone
  Peers peers = Peers::kReal;
};

// The world rank whose values a member holds.
inline std::int64_t holder(const Group& group, Peers peers, std::int64_t member) {
  const std::int64_t source = peers == Peers::kReal ? member : group.rank();
  return group.world_ranks()[static_cast<std::size_t>(source)];
}

inline double reduced(const Group& group, Peers peers, ReduceOp op, std::int64_t index) {
  double total = value_at(holder(group, peers, 0), index);
  for (int m = 1; m < group.size(); ++m) {
    const double value = value_at(holder(group, peers, m), index);
    if (op == ReduceOp::kSum) total += value;
    if (op == ReduceOp::kMax) total = std::max(total, value);
    if (op == ReduceOp::kMin) total = std::min(total, value);
  }
  return total;
}

inline void reductions(Group& group, Peers peers, std::int64_t own, DType dtype, Device device,
                       std::int64_t rows) {
  const auto mine = [own](std::int64_t i) { return value_at(own, i); };
  const std::string what = fmt::format("{} x {} rows", tensor::dtype_name(dtype), rows);
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
    const Tensor t = filled({rows, 3}, dtype, device, mine);
    group.all_reduce(t, op)->wait();
    require_equal(
        t, [&](std::int64_t i) { return reduced(group, peers, op, i); }, "all_reduce " + what);

    const Tensor in = filled({rows * group.size(), 3}, dtype, device, mine);
    const Tensor out = tensor::empty({rows, 3}, dtype, device);
    group.reduce_scatter(out, in, op)->wait();
    const std::int64_t offset = group.rank() * rows * 3;
    require_equal(
        out, [&](std::int64_t i) { return reduced(group, peers, op, offset + i); },
        "reduce_scatter " + what);
    require_equal(in, mine, "the input of reduce_scatter " + what);
  }
}

inline void movements(Group& group, Peers peers, std::int64_t own, DType dtype, Device device,
                      std::int64_t rows) {
  const auto mine = [own](std::int64_t i) { return value_at(own, i); };
  const std::string what = fmt::format("{} x {} rows", tensor::dtype_name(dtype), rows);
  const Tensor gathered = all_gather(group, filled({rows, 2}, dtype, device, mine));
  require_equal(
      gathered,
      [&](std::int64_t i) {
        const std::int64_t part = rows * 2;
        return value_at(holder(group, peers, i / part), i % part);
      },
      "all_gather " + what);
  for (int root = 0; root < group.size(); ++root) {
    const Tensor t = filled({rows, 2}, dtype, device, mine);
    group.broadcast(t, root)->wait();
    const std::int64_t source = holder(group, peers, root);
    require_equal(
        t, [&](std::int64_t i) { return value_at(source, i); }, "broadcast " + what);
  }
}

// Member a sends (a + 2 b) % 3 rows to member b: zero rows and uneven pairs among them; then nobody
// sends anything.
inline void uneven_all_to_all(Group& group, Peers peers, std::int64_t own, DType dtype,
                              Device device) {
  for (const bool nothing : {false, true}) {
    const auto rows = [nothing](std::int64_t from, std::int64_t to) {
      return nothing ? 0 : (from + 2 * to) % 3;
    };
    const std::int64_t me = group.rank();
    std::vector<std::int64_t> in_splits;
    std::vector<std::int64_t> out_splits;
    std::vector<double> expected;
    std::int64_t in_rows = 0;
    std::int64_t out_rows = 0;
    for (std::int64_t peer = 0; peer < group.size(); ++peer) {
      in_splits.push_back(rows(me, peer));
      out_splits.push_back(rows(peer, me));
      in_rows += in_splits.back();
      out_rows += out_splits.back();
      // A member like this rank sends here what this rank sends to itself, and zeros beyond that.
      const std::int64_t sender = peers == Peers::kReal ? peer : me;
      std::int64_t skipped = 0;
      for (std::int64_t before = 0; before < me; ++before) skipped += rows(sender, before);
      for (std::int64_t i = 0; i < rows(peer, me) * 2; ++i) {
        const bool sent = i < rows(sender, me) * 2;
        expected.push_back(sent ? value_at(holder(group, peers, peer), skipped * 2 + i) : 0);
      }
    }
    const Tensor in =
        filled({in_rows, 2}, dtype, device, [own](std::int64_t i) { return value_at(own, i); });
    const Tensor out = tensor::empty({out_rows, 2}, dtype, device);
    group.all_to_all(out, in, out_splits, in_splits)->wait();
    require_equal(
        out, [&](std::int64_t i) { return expected[static_cast<std::size_t>(i)]; },
        fmt::format("all_to_all {}", tensor::dtype_name(dtype)));
  }
}

inline void point_to_point(Group& group, Peers peers, DType dtype, Device device) {
  const int me = group.rank();
  // Everybody posts to everybody, half of the ranks receive first: no order of posting may block.
  std::vector<WorkPtr> works;
  std::vector<Tensor> received(static_cast<std::size_t>(group.size()) * 3);
  const auto post_sends = [&] {
    for (int peer = 0; peer < group.size(); ++peer) {
      for (int k = 0; k < 3 && peer != me; ++k) {
        works.push_back(group.send(
            filled({4 * k}, dtype, device, [&](std::int64_t i) { return value_at(me + 2 * k, i); }),
            peer));
      }
    }
  };
  const auto post_recvs = [&] {
    for (int peer = 0; peer < group.size(); ++peer) {
      for (int k = 0; k < 3 && peer != me; ++k) {
        Tensor& t = received[static_cast<std::size_t>(peer) * 3 + static_cast<std::size_t>(k)];
        t = tensor::empty({4 * k}, dtype, device);
        works.push_back(group.recv(t, peer));
      }
    }
  };
  if (me % 2 == 0) {
    post_sends();
    post_recvs();
  } else {
    post_recvs();
    post_sends();
  }
  for (WorkPtr& work : works) work->wait();
  for (int peer = 0; peer < group.size(); ++peer) {
    for (int k = 0; k < 3 && peer != me; ++k) {
      require_equal(
          received[static_cast<std::size_t>(peer) * 3 + static_cast<std::size_t>(k)],
          [&](std::int64_t i) { return peers == Peers::kReal ? value_at(peer + 2 * k, i) : 0; },
          "recv in order");
    }
  }
}

// Several operations under way at once, waited for backwards; a dropped one finishes as well.
inline void asynchronous(Group& group, Peers peers, Device device) {
  const std::int64_t own = group.world_ranks()[static_cast<std::size_t>(group.rank())];
  const Tensor a =
      filled({100}, DType::Float, device, [&](std::int64_t i) { return value_at(own, i); });
  const Tensor b = a.clone();
  const Tensor gathered = tensor::empty({100 * group.size()}, DType::Float, device);
  WorkPtr first = group.all_reduce(a, ReduceOp::kSum);
  WorkPtr second = group.all_gather(gathered, b);
  const Tensor c = b.clone();
  { const WorkPtr dropped = group.all_reduce(c, ReduceOp::kMax); }
  second->wait();
  first->wait();
  first->wait();  // a second wait is harmless
  require_equal(
      a, [&](std::int64_t i) { return reduced(group, peers, ReduceOp::kSum, i); }, "first");
  require_equal(
      c, [&](std::int64_t i) { return reduced(group, peers, ReduceOp::kMax, i); }, "dropped");
  require_equal(
      gathered, [&](std::int64_t i) { return value_at(holder(group, peers, i / 100), i % 100); },
      "second");
}

inline void host_values(Group& group, Peers peers) {
  const auto size = static_cast<double>(group.size());
  const auto me = static_cast<double>(group.rank());
  const bool real = peers == Peers::kReal;
  const double ranks = real ? size * (size - 1) / 2 : size * me;  // their sum
  require(all_reduce_value(group, me + 0.25) == ranks + size / 4, "sum");
  require(all_reduce_value(group, me, ReduceOp::kMax) == (real ? size - 1 : me), "max");
  require(all_reduce_value(group, me, ReduceOp::kMin) == (real ? 0 : me), "min");
  for (const bool same_size : {false, true}) {
    const auto text = [same_size](int member) {
      return std::string(static_cast<std::size_t>(same_size ? 5 : member * 3),
                         static_cast<char>('a' + member));
    };
    const auto all = all_gather_bytes(group, text(group.rank()));
    require(static_cast<int>(all.size()) == group.size(), "all_gather_bytes count");
    for (int member = 0; member < group.size(); ++member) {
      const int source = real ? member : group.rank();
      require(all[static_cast<std::size_t>(member)] == text(source), "all_gather_bytes content");
    }
  }
}

// 256 + 1 + 1: one rounding at the end gives 258, rounding after each step gives 256.
inline void bf16_rounds_once(Group& group, Peers peers, Device device) {
  if (group.size() < 3) return;
  const double mine = group.rank() == 0 ? 256 : group.rank() < 3 ? 1 : 0;
  const double sum = peers == Peers::kReal ? 258 : mine * group.size();
  const Tensor t = tensor::full({5}, mine, DType::BFloat16, device);
  group.all_reduce(t, ReduceOp::kSum)->wait();
  require_equal(
      t, [sum](std::int64_t) { return sum; }, "bf16 sum");
  const Tensor in = tensor::full({group.size(), 2}, mine, DType::BFloat16, device);
  require_equal(
      reduce_scatter(group, in), [sum](std::int64_t) { return sum; }, "bf16 scatter");
}

inline void all_operations(Group& group, std::int64_t own, const Subject& subject) {
  const Peers peers = subject.peers;
  for (DType dtype : {DType::Double, DType::Float, DType::BFloat16, DType::Long}) {
    for (std::int64_t rows : {0, 1, 7, 700}) {
      reductions(group, peers, own, dtype, subject.device, rows);
      movements(group, peers, own, dtype, subject.device, rows);
    }
    uneven_all_to_all(group, peers, own, dtype, subject.device);
    point_to_point(group, peers, dtype, subject.device);
  }
  asynchronous(group, peers, subject.device);
  host_values(group, peers);
  if (subject.rounds_once) bf16_rounds_once(group, peers, subject.device);
  group.barrier();
}

// Two contexts with different grids in one process.
inline void two_contexts(Backend& backend, Peers peers) {
  const std::int64_t world = backend.world_size();
  const std::int64_t half = world % 2 == 0 ? 2 : 1;
  ParallelContext wide(backend, RankGrid({{"tp", world, {}}, {"dp", 1, {}}, {"pp", 1, {}}}),
                       "wide");
  ParallelContext deep(
      backend, RankGrid({{"tp", 1, {}}, {"dp", world / half, {}}, {"pp", half, {}}}), "deep");
  require(all_reduce_value(wide.group("tp"), 1) == static_cast<double>(world), "wide tp");
  require(all_reduce_value(deep.group("tp"), 1) == 1, "deep tp");
  const std::int64_t shares = world / half;
  require(all_reduce_value(deep.group("dp"), 1) == static_cast<double>(shares), "deep dp");
  require(all_reduce_value(deep.world(), 1) == static_cast<double>(world), "deep world");
  const TieGroups ties(deep, "pp", {"shared", fmt::format("own {}", deep.coordinate("pp"))});
  require((ties.ties().size() == 1) == (half == 2), "tied ends");
  for (const TieGroups::Tie& tie : ties.ties()) {
    // Peers that say what this rank says share its own name too.
    const std::vector<std::string> all = {fmt::format("own {}", deep.coordinate("pp")), "shared"};
    require(tie.names == (peers == Peers::kReal ? std::vector<std::string>{"shared"} : all),
            "tied names");
    require(all_reduce_value(*tie.group, 1) == 2, "tied ends size");
  }
}

inline void run(Backend& backend, const Subject& subject = {}) {
  const std::int64_t world = backend.world_size();
  const std::int64_t own = backend.rank();
  std::vector<std::int64_t> everyone;
  std::vector<std::int64_t> like_me;  // even or odd ranks
  for (std::int64_t rank = 0; rank < world; ++rank) {
    everyone.push_back(rank);
    if (rank % 2 == own % 2) like_me.push_back(rank);
  }
  const auto all = backend.make_group(everyone, "all");
  const auto parity = backend.make_group(like_me, fmt::format("parity:{}", own % 2));
  require(all->size() == static_cast<int>(world) && all->rank() == static_cast<int>(own), "ranks");
  require(parity->world_ranks() == like_me, "members of the sub-group");
  all_operations(*all, own, subject);
  all_operations(*parity, own, subject);
  two_contexts(backend, subject.peers);
  // A name that was used before is a new group.
  const auto again = backend.make_group(everyone, "all");
  require(all_reduce_value(*again, 1) == static_cast<double>(world), "group made again");
}

}  // namespace pentatron::comm::conformance
