// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/comm/forwarding_test_support.h"

// Only tests include this: a backend whose groups leave collectives out or get them wrong, so that
// a suite can show that it would notice.
namespace pentatron::comm::testing_support {

enum class Collective { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kReceive };
// What a faulty collective does instead of its work: nothing between ranks (each keeps what it had,
// a gather or scatter moves this rank's own part only, what is received is zero); or the real work
// and then a division by the size of the group, the members' parts in reverse order (gather,
// exchange), the shard of the member before (scatter), or the message before this one (receive).
// kDefer: the real work (all-reduce, scatter), but it starts only when it is waited for.
enum class Harm { kLeaveOut, kDivide, kReverse, kShift, kStale, kDefer };

struct Fault {
  Collective collective = Collective::kAllReduce;
  std::string group;  // part of the group's name, "/cp-dp:" or "/tie-pp:"
  Harm harm = Harm::kLeaveOut;
  std::int64_t least_elements = 2;  // of the whole tensor: counts and norms pass
  std::optional<ReduceOp> op = {};  // of an all-reduce; none: any
  // Hears of every all-reduce and reduce-scatter when the real one starts; may be empty.
  std::function<void(Collective, const std::string& group, const Tensor& whole)> heard = {};
};

class FaultyGroup final : public ForwardingGroup {
 public:
  FaultyGroup(std::unique_ptr<Group> real, Fault fault)
      : ForwardingGroup(std::move(real)), fault_(std::move(fault)) {}

  [[nodiscard]] WorkPtr all_reduce(Tensor t, ReduceOp op) override {
    if (!hit(Collective::kAllReduce, t) || (fault_.op && *fault_.op != op)) {
      return start_all_reduce(t, op);
    }
    if (fault_.harm == Harm::kDefer) {
      return std::make_unique<Deferred>([this, t, op] { return start_all_reduce(t, op); });
    }
    if (fault_.harm == Harm::kDivide) {
      real().all_reduce(t, op)->wait();
      t.div_(static_cast<double>(size()));
    }
    return done();
  }
  [[nodiscard]] WorkPtr all_gather(Tensor out, Tensor in) override {
    if (!hit(Collective::kAllGather, out)) return real().all_gather(std::move(out), std::move(in));
    if (fault_.harm == Harm::kReverse) {
      real().all_gather(out, in)->wait();
      reverse(out);
    } else {
      out.narrow(0, rank() * in.size(0), in.size(0)).copy_(in);
    }
    return done();
  }
  [[nodiscard]] WorkPtr reduce_scatter(Tensor out, Tensor in, ReduceOp op) override {
    if (!hit(Collective::kReduceScatter, in)) return start_reduce_scatter(out, in, op);
    if (fault_.harm == Harm::kDefer) {
      return std::make_unique<Deferred>(
          [this, out, in, op] { return start_reduce_scatter(out, in, op); });
    }
    if (fault_.harm == Harm::kDivide) {
      real().reduce_scatter(out, in, op)->wait();
      out.div_(static_cast<double>(size()));
    } else if (fault_.harm == Harm::kShift) {
      real().reduce_scatter(out, in.view({size(), -1}).roll(1, 0).view(in.sizes()), op)->wait();
    } else {
      out.copy_(in.narrow(0, rank() * out.size(0), out.size(0)));
    }
    return done();
  }
  [[nodiscard]] WorkPtr all_to_all(Tensor out, Tensor in, std::vector<std::int64_t> out_splits,
                                   std::vector<std::int64_t> in_splits) override {
    if (hit(Collective::kAllToAll, in) && fault_.harm == Harm::kReverse) {
      real().all_to_all(out, std::move(in), std::move(out_splits), std::move(in_splits))->wait();
      reverse(out);
      return done();
    }
    if (hit(Collective::kAllToAll, in)) {
      out.copy_(in);
      return done();
    }
    return real().all_to_all(std::move(out), std::move(in), std::move(out_splits),
                             std::move(in_splits));
  }
  [[nodiscard]] WorkPtr recv(Tensor t, int peer) override {
    if (!hit(Collective::kReceive, t)) return real().recv(std::move(t), peer);
    if (fault_.harm == Harm::kStale) {
      return std::make_unique<Stale>(real().recv(t, peer), t, last_[peer]);
    }
    return std::make_unique<Zeroed>(real().recv(t, peer), t);
  }

 private:
  class Done final : public Work {
   public:
    void wait() override {}
  };
  class Deferred final : public Work {
   public:
    explicit Deferred(std::function<WorkPtr()> start) : start_(std::move(start)) {}
    void wait() override {
      if (!start_) return;
      std::exchange(start_, nullptr)()->wait();
    }

   private:
    std::function<WorkPtr()> start_;
  };
  class Zeroed final : public Work {
   public:
    Zeroed(WorkPtr real, Tensor t) : real_(std::move(real)), t_(std::move(t)) {}
    void wait() override {
      real_->wait();
      t_.zero_();
    }

   private:
    WorkPtr real_;
    Tensor t_;
  };
  // The first message of a peer is zero, as one of another size.
  class Stale final : public Work {
   public:
    Stale(WorkPtr real, Tensor t, Tensor& last)
        : real_(std::move(real)), t_(std::move(t)), last_(last) {}
    void wait() override {
      real_->wait();
      if (waited_) return;
      waited_ = true;
      const Tensor came = t_.clone();
      if (last_.defined() && last_.sizes() == t_.sizes()) {
        t_.copy_(last_);
      } else {
        t_.zero_();
      }
      last_ = came;
    }

   private:
    WorkPtr real_;
    Tensor t_;
    Tensor& last_;
    bool waited_ = false;
  };
  WorkPtr start_all_reduce(const Tensor& t, ReduceOp op) {
    if (fault_.heard) fault_.heard(Collective::kAllReduce, name(), t);
    return real().all_reduce(t, op);
  }
  WorkPtr start_reduce_scatter(const Tensor& out, const Tensor& in, ReduceOp op) {
    if (fault_.heard) fault_.heard(Collective::kReduceScatter, name(), in);
    return real().reduce_scatter(out, in, op);
  }
  void reverse(const Tensor& t) const {
    const Tensor parts = t.view({size(), -1});
    parts.copy_(parts.flip({0}));
  }
  static WorkPtr done() { return std::make_unique<Done>(); }
  [[nodiscard]] bool hit(Collective collective, const Tensor& whole) const {
    return collective == fault_.collective && name().find(fault_.group) != std::string::npos &&
           whole.numel() >= fault_.least_elements;
  }

  Fault fault_;
  std::map<int, Tensor> last_;  // message of each peer
};

class FaultyBackend final : public ForwardingBackend {
 public:
  FaultyBackend(Backend& real, Fault fault) : ForwardingBackend(real), fault_(std::move(fault)) {}

 private:
  [[nodiscard]] std::unique_ptr<Group> wrap(std::unique_ptr<Group> real) override {
    return std::make_unique<FaultyGroup>(std::move(real), fault_);
  }

  Fault fault_;
};

}  // namespace pentatron::comm::testing_support
