// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "pentatron/comm/backend.h"
#include "pentatron/comm/collectives.h"
#include "pentatron/comm/group_base.h"
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
// The same for dtypes without a sign.
inline double value_at(DType dtype, std::int64_t rank, std::int64_t index) {
  const double value = value_at(rank, index);
  if (dtype == DType::Byte) return value + 6;
  if (dtype == DType::Bool) return value > 0 ? 1 : 0;
  return value;
}

// Signs and powers of two, whose products are exact in every dtype with a sign.
inline double factor_at(DType dtype, std::int64_t rank, std::int64_t index) {
  const double size = (index + rank) % 3 == 0 ? 2 : 1;
  return dtype != DType::Byte && (index * 3 + rank) % 5 == 0 ? -size : size;
}

// What a rank brings to a reduction.
inline double brought_at(ReduceOp op, DType dtype, std::int64_t rank, std::int64_t index) {
  return op == ReduceOp::kProduct ? factor_at(dtype, rank, index) : value_at(dtype, rank, index);
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

inline constexpr ReduceOp kReduceOps[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin,
                                          ReduceOp::kAverage, ReduceOp::kProduct};

inline double reduced(const Group& group, Peers peers, ReduceOp op, std::int64_t index,
                      DType dtype = DType::Float) {
  double total = brought_at(op, dtype, holder(group, peers, 0), index);
  for (int m = 1; m < group.size(); ++m) {
    const double value = brought_at(op, dtype, holder(group, peers, m), index);
    if (op == ReduceOp::kSum || op == ReduceOp::kAverage) total += value;
    if (op == ReduceOp::kMax) total = std::max(total, value);
    if (op == ReduceOp::kMin) total = std::min(total, value);
    if (op == ReduceOp::kProduct) total *= value;
  }
  constexpr double kByteValues = 256;  // whole numbers wrap
  if (op == ReduceOp::kProduct && dtype == DType::Byte) return std::fmod(total, kByteValues);
  if (op != ReduceOp::kAverage) return total;
  const double average = total / group.size();
  return c10::isFloatingType(dtype) ? average : std::trunc(average);
}

// Sums, extremes and products are exact; an average is rounded, once or at each step.
inline void require_reduced(const Tensor& t, const Group& group, Peers peers, ReduceOp op,
                            std::int64_t offset, const std::string& what) {
  const DType dtype = t.scalar_type();
  const auto expected = [&](std::int64_t i) {
    return reduced(group, peers, op, offset + i, dtype);
  };
  const std::string name = fmt::format("{} ({})", what, to_string(op));
  if (op != ReduceOp::kAverage || !c10::isFloatingType(dtype)) {
    require_equal(t, expected, name);
    return;
  }
  constexpr double kLargest = 6;  // of value_at()
  const double unit = dtype == DType::BFloat16 ? 0x1p-8 : dtype == DType::Half ? 0x1p-11 : 0x1p-23;
  const Tensor wide = t.cpu().to(DType::Double).contiguous();
  const auto* data = static_cast<const double*>(wide.const_data_ptr());
  for (std::int64_t i = 0; i < wide.numel(); ++i) {
    require(std::abs(data[i] - expected(i)) <= group.size() * kLargest * unit,
            fmt::format("{}: element {} is {}, expected {}", name, i, data[i], expected(i)));
  }
}

inline void reductions(Group& group, Peers peers, std::int64_t own, DType dtype, Device device,
                       std::int64_t rows) {
  const std::string what = fmt::format("{} x {} rows", tensor::dtype_name(dtype), rows);
  for (const ReduceOp op : kReduceOps) {
    const auto mine = [=](std::int64_t i) { return brought_at(op, dtype, own, i); };
    const Tensor t = filled({rows, 3}, dtype, device, mine);
    group.all_reduce(t, op)->wait();
    require_reduced(t, group, peers, op, 0, "all_reduce " + what);

    const Tensor in = filled({rows * group.size(), 3}, dtype, device, mine);
    const Tensor out = tensor::empty({rows, 3}, dtype, device);
    group.reduce_scatter(out, in, op)->wait();
    require_reduced(out, group, peers, op, group.rank() * rows * 3, "reduce_scatter " + what);
    require_equal(in, mine, "the input of reduce_scatter " + what);
  }
}

inline void movements(Group& group, Peers peers, std::int64_t own, DType dtype, Device device,
                      std::int64_t rows) {
  const auto mine = [=](std::int64_t i) { return value_at(dtype, own, i); };
  const std::string what = fmt::format("{} x {} rows", tensor::dtype_name(dtype), rows);
  const Tensor gathered = all_gather(group, filled({rows, 2}, dtype, device, mine));
  require_equal(
      gathered,
      [&](std::int64_t i) {
        const std::int64_t part = rows * 2;
        return value_at(dtype, holder(group, peers, i / part), i % part);
      },
      "all_gather " + what);
  for (int root = 0; root < group.size(); ++root) {
    const Tensor t = filled({rows, 2}, dtype, device, mine);
    group.broadcast(t, root)->wait();
    const std::int64_t source = holder(group, peers, root);
    require_equal(
        t, [&](std::int64_t i) { return value_at(dtype, source, i); }, "broadcast " + what);
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
        expected.push_back(sent ? value_at(dtype, holder(group, peers, peer), skipped * 2 + i) : 0);
      }
    }
    const Tensor in = filled({in_rows, 2}, dtype, device,
                             [=](std::int64_t i) { return value_at(dtype, own, i); });
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
        works.push_back(
            group.send(filled({4 * k}, dtype, device,
                              [&](std::int64_t i) { return value_at(dtype, me + 2 * k, i); }),
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
          [&](std::int64_t i) {
            return peers == Peers::kReal ? value_at(dtype, peer + 2 * k, i) : 0;
          },
          "recv in order");
    }
  }
}

// Member m has (m + 1) % 3 rows: none on some.
inline std::vector<std::int64_t> uneven_rows(const Group& group) {
  std::vector<std::int64_t> rows;
  for (int m = 0; m < group.size(); ++m) rows.push_back((m + 1) % 3);
  return rows;
}

inline std::int64_t rows_before(const std::vector<std::int64_t>& rows, int member) {
  std::int64_t before = 0;
  for (int m = 0; m < member; ++m) before += rows[static_cast<std::size_t>(m)];
  return before;
}

// A gather of `rows` as this rank sees it: peers like this rank have no more than it has, zeros
// follow.
inline std::vector<double> gathered(const Group& group, Peers peers, DType dtype,
                                    const std::vector<std::int64_t>& rows) {
  std::vector<double> expected;
  const std::int64_t own_rows = rows[static_cast<std::size_t>(group.rank())];
  for (int m = 0; m < group.size(); ++m) {
    for (std::int64_t i = 0; i < rows[static_cast<std::size_t>(m)] * 2; ++i) {
      const bool held = peers == Peers::kReal || i < own_rows * 2;
      expected.push_back(held ? value_at(dtype, holder(group, peers, m), i) : 0);
    }
  }
  return expected;
}

inline void require_list(const Tensor& t, const std::vector<double>& expected,
                         const std::string& what) {
  require(t.numel() == static_cast<std::int64_t>(expected.size()), what + ": size");
  require_equal(
      t, [&](std::int64_t i) { return expected[static_cast<std::size_t>(i)]; }, what);
}

// Gather, scatter and the uneven all-gather, over every root.
inline void uneven_movements(Group& group, Peers peers, std::int64_t own, DType dtype,
                             Device device) {
  const auto mine = [=](std::int64_t i) { return value_at(dtype, own, i); };
  const std::vector<std::int64_t> rows = uneven_rows(group);
  const std::int64_t total = rows_before(rows, group.size());
  const std::int64_t own_rows = rows[static_cast<std::size_t>(group.rank())];
  const std::string what = std::string(tensor::dtype_name(dtype));
  const Tensor in = filled({own_rows, 2}, dtype, device, mine);
  const Tensor all = tensor::empty({total, 2}, dtype, device);
  all_gather_uneven(group, all, in, rows)->wait();
  require_list(all, gathered(group, peers, dtype, rows), "all_gather_uneven " + what);
  for (int root = 0; root < group.size(); ++root) {
    const bool is_root = group.rank() == root;
    const Tensor out = is_root ? tensor::empty({total, 2}, dtype, device) : Tensor();
    gather(group, out, in, root, rows)->wait();
    if (is_root) require_list(out, gathered(group, peers, dtype, rows), "gather " + what);

    const Tensor whole = is_root ? filled({total, 2}, dtype, device, mine) : Tensor();
    const Tensor part = tensor::empty({own_rows, 2}, dtype, device);
    scatter(group, part, whole, root, rows)->wait();
    const std::int64_t offset = rows_before(rows, group.rank()) * 2;
    const std::int64_t source = group.world_ranks()[static_cast<std::size_t>(root)];
    require_equal(
        part,
        [&](std::int64_t i) {
          return peers == Peers::kReal || is_root ? value_at(dtype, source, offset + i) : 0;
        },
        "scatter " + what);
  }
}

inline void uneven_reductions(Group& group, Peers peers, std::int64_t own, DType dtype,
                              Device device) {
  const std::vector<std::int64_t> rows = uneven_rows(group);
  const std::int64_t own_rows = rows[static_cast<std::size_t>(group.rank())];
  const std::string what = std::string(tensor::dtype_name(dtype));
  for (const ReduceOp op : kReduceOps) {
    const auto mine = [=](std::int64_t i) { return brought_at(op, dtype, own, i); };
    const Tensor in = filled({rows_before(rows, group.size()), 2}, dtype, device, mine);
    const Tensor out = tensor::empty({own_rows, 2}, dtype, device);
    reduce_scatter_uneven(group, out, in, rows, op)->wait();
    const std::int64_t offset = rows_before(rows, group.rank()) * 2;
    require_reduced(out, group, peers, op, offset, "reduce_scatter_uneven " + what);
    for (int root = 0; root < group.size(); ++root) {
      const Tensor t = filled({5, 2}, dtype, device, mine);
      reduce(group, t, root, op)->wait();
      if (group.rank() == root) {
        require_reduced(t, group, peers, op, 0, "reduce " + what);
      } else {
        require_equal(t, mine, "reduce " + what);
      }
    }
  }
}

// Tensors of 0, 3 and 8 elements, times the members where they are whole, as one operation.
inline void coalesced(Group& group, Peers peers, std::int64_t own, DType dtype, Device device) {
  const auto mine = [=](std::int64_t i) { return value_at(dtype, own, i); };
  const std::string what = std::string(tensor::dtype_name(dtype));
  std::vector<Tensor> reduced_ones, parts, wholes, gathered_ones, scattered;
  for (const std::int64_t count : {0, 3, 8}) {
    reduced_ones.push_back(filled({count}, dtype, device, mine));
    parts.push_back(filled({count}, dtype, device, mine));
    wholes.push_back(filled({group.size(), count}, dtype, device, mine));
    gathered_ones.push_back(tensor::empty({group.size() * count}, dtype, device));
    scattered.push_back(tensor::empty({count}, dtype, device));
  }
  WorkPtr reducing = all_reduce_coalesced(group, reduced_ones, ReduceOp::kSum);
  WorkPtr gathering = all_gather_coalesced(group, gathered_ones, parts);
  reduce_scatter_coalesced(group, scattered, wholes, ReduceOp::kMax)->wait();
  gathering->wait();
  reducing->wait();
  reducing->wait();  // a second wait is harmless
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const std::int64_t count = parts[k].numel();
    require_equal(
        reduced_ones[k],
        [&](std::int64_t i) { return reduced(group, peers, ReduceOp::kSum, i, dtype); },
        "all_reduce_coalesced " + what);
    require_equal(
        gathered_ones[k],
        [&](std::int64_t i) { return value_at(dtype, holder(group, peers, i / count), i % count); },
        "all_gather_coalesced " + what);
    require_equal(
        scattered[k],
        [&](std::int64_t i) {
          return reduced(group, peers, ReduceOp::kMax, group.rank() * count + i, dtype);
        },
        "reduce_scatter_coalesced " + what);
  }
  all_reduce_coalesced(group, {}, ReduceOp::kSum)->wait();
}

// A ring in both directions as one batch; on even members receives stand first.
inline void batched_messages(Group& group, Peers peers, DType dtype, Device device) {
  if (group.size() < 2) return;
  const int next = (group.rank() + 1) % group.size();
  const int previous = (group.rank() + group.size() - 1) % group.size();
  const auto message = [&](int from, std::int64_t i) { return value_at(dtype, 3 * from, i); };
  std::vector<Tensor> received;
  std::vector<PairOp> ops;
  for (const int peer : {next, previous}) {
    const Tensor sent =
        filled({6}, dtype, device, [&](std::int64_t i) { return message(group.rank(), i); });
    ops.push_back({.kind = PairOp::Kind::kSend, .tensor = sent, .peer = peer});
    received.push_back(tensor::empty({6}, dtype, device));
    ops.push_back({.kind = PairOp::Kind::kReceive, .tensor = received.back(), .peer = peer});
  }
  if (group.rank() % 2 == 0) std::reverse(ops.begin(), ops.end());
  batch_send_recv(group, ops)->wait();
  // Two members: both messages are between them, in the order of the lists, and alike.
  const int from[] = {next, previous};
  for (std::size_t k = 0; k < received.size(); ++k) {
    require_equal(
        received[k],
        [&](std::int64_t i) { return peers == Peers::kReal ? message(from[k], i) : 0; },
        "batch_send_recv");
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
  const Device device = subject.device;
  for (DType dtype : {DType::Double, DType::Float, DType::BFloat16, DType::Half, DType::Long,
                      DType::Int, DType::Byte}) {
    for (std::int64_t rows : {0, 1, 7, 700}) reductions(group, peers, own, dtype, device, rows);
    uneven_reductions(group, peers, own, dtype, device);
    coalesced(group, peers, own, dtype, device);
  }
  // What is moved alone may have any dtype.
  for (DType dtype : {DType::Double, DType::Float, DType::BFloat16, DType::Half, DType::Long,
                      DType::Byte, DType::Bool, DType::Float8_e4m3fn, DType::Float8_e5m2}) {
    for (std::int64_t rows : {0, 1, 7, 700}) movements(group, peers, own, dtype, device, rows);
    uneven_all_to_all(group, peers, own, dtype, device);
    uneven_movements(group, peers, own, dtype, device);
    point_to_point(group, peers, dtype, device);
    batched_messages(group, peers, dtype, device);
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

// Groups that share members, with operations of both under way at once; ranks post them in
// different orders, which is nobody's business but each group's.
inline void overlapping_groups(Backend& backend, const Subject& subject) {
  const std::int64_t world = backend.world_size();
  const std::int64_t own = backend.rank();
  if (world < 2) return;
  // Every rank with its neighbours: {0, 1}, {1, 2}, ...
  std::vector<std::unique_ptr<Group>> pairs;
  for (std::int64_t low = 0; low + 1 < world; ++low) {
    if (own != low && own != low + 1) continue;
    pairs.push_back(backend.make_group({low, low + 1}, fmt::format("pair:{}", low)));
  }
  if (own % 2 == 1) std::reverse(pairs.begin(), pairs.end());
  std::vector<Tensor> sums;
  std::vector<WorkPtr> works;
  for (const auto& pair : pairs) {
    sums.push_back(filled({300}, DType::Float, subject.device,
                          [own](std::int64_t i) { return value_at(own, i); }));
    works.push_back(pair->all_reduce(sums.back(), ReduceOp::kSum));
  }
  for (std::size_t k = 0; k < pairs.size(); ++k) {
    works[k]->wait();
    require_equal(
        sums[k],
        [&](std::int64_t i) { return reduced(*pairs[k], subject.peers, ReduceOp::kSum, i); },
        "all_reduce of overlapping groups");
  }
  // A group of this rank alone.
  const auto alone = backend.make_group({own}, fmt::format("alone:{}", own));
  all_operations(*alone, own, subject);
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
  overlapping_groups(backend, subject);
  two_contexts(backend, subject.peers);
  // A name that was used before is a new group.
  const auto again = backend.make_group(everyone, "all");
  require(all_reduce_value(*again, 1) == static_cast<double>(world), "group made again");
}

}  // namespace pentatron::comm::conformance
