// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/comm/backend.h"
#include "pentatron/comm/group_base.h"

namespace pentatron::comm {
namespace {

class LocalGroup final : public GroupBase {
 public:
  LocalGroup(std::string name, std::vector<std::int64_t> ranks, std::int64_t world_rank,
             std::int64_t world_size)
      : GroupBase(std::move(name), std::move(ranks), world_rank, world_size) {}

  WorkPtr all_reduce(Tensor t, ReduceOp op) override {
    check_tensor("all_reduce", t);
    if (op == ReduceOp::kSum && size() > 1) t.mul_(size());
    if (op == ReduceOp::kProduct && size() > 1) t.pow_(size());
    return finished_work();
  }

  WorkPtr all_gather(Tensor out, Tensor in) override {
    check_whole("all_gather", out, in);
    const Tensor flat = out.view({-1});
    const Tensor source = in.view({-1});
    for (int member = 0; member < size(); ++member) {
      copy(flat.narrow(0, member * in.numel(), in.numel()), source);
    }
    return finished_work();
  }

  WorkPtr reduce_scatter(Tensor out, Tensor in, ReduceOp op) override {
    check_whole("reduce_scatter", in, out);
    copy(out.view({-1}), in.view({-1}).narrow(0, rank() * out.numel(), out.numel()));
    return all_reduce(std::move(out), op);
  }

  WorkPtr all_to_all(Tensor out, Tensor in, std::vector<std::int64_t> out_splits,
                     std::vector<std::int64_t> in_splits) override {
    static_cast<void>(check_splits(out, in, out_splits, in_splits));
    const auto own = static_cast<std::size_t>(rank());
    std::int64_t in_row = 0;
    for (std::size_t member = 0; member < own; ++member) in_row += in_splits[member];
    std::int64_t out_row = 0;
    for (std::int64_t rows : out_splits) {
      // Members that would send more than this rank sends to itself have no data here: zeros.
      const std::int64_t known = std::min(rows, in_splits[own]);
      copy(out.narrow(0, out_row, known), in.narrow(0, in_row, known));
      out.narrow(0, out_row + known, rows - known).zero_();
      out_row += rows;
    }
    return finished_work();
  }

  WorkPtr broadcast(Tensor t, int root) override {
    check_tensor("broadcast", t);
    check_member("broadcast", root);
    return finished_work();
  }

  WorkPtr send(Tensor t, int peer) override {
    check_tensor("send", t);
    check_peer("send", peer);
    return finished_work();
  }

  WorkPtr recv(Tensor t, int peer) override {
    check_tensor("recv", t);
    check_peer("recv", peer);
    t.zero_();
    return finished_work();
  }

  void barrier() override {}

 private:
  static void copy(const Tensor& to, const Tensor& from) {
    if (to.numel() > 0 && to.data_ptr() != from.data_ptr()) to.copy_(from);
  }
};

class FakeBackend final : public Backend {
 public:
  FakeBackend(std::string name, std::int64_t rank, std::int64_t world_size)
      : name_(std::move(name)), rank_(rank), world_size_(world_size) {
    PENTATRON_CHECK(world_size >= 1 && rank >= 0 && rank < world_size, kConfig,
                    "{} backend: rank {} is outside a world of {} (--world-size, RANK)", name_,
                    rank, world_size);
  }

  std::string name() const override { return name_; }
  std::int64_t rank() const override { return rank_; }
  std::int64_t world_size() const override { return world_size_; }
  std::unique_ptr<Group> make_group(const std::vector<std::int64_t>& ranks,
                                    const std::string& name) override {
    return make_local_group(name, ranks, rank_, world_size_);
  }
  void poison(const std::string& message) override {}  // nobody waits for this rank
  void shutdown() override {}

 private:
  std::string name_;
  std::int64_t rank_;
  std::int64_t world_size_;
};

}  // namespace

std::unique_ptr<Group> make_local_group(std::string name, std::vector<std::int64_t> ranks,
                                        std::int64_t world_rank, std::int64_t world_size) {
  return std::make_unique<LocalGroup>(std::move(name), std::move(ranks), world_rank, world_size);
}

std::unique_ptr<Backend> make_fake_backend(std::int64_t rank, std::int64_t world_size) {
  return std::make_unique<FakeBackend>("fake", rank, world_size);
}

std::unique_ptr<Backend> make_single_backend() {
  return std::make_unique<FakeBackend>("single", 0, 1);
}

}  // namespace pentatron::comm
