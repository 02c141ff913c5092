// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/comm/forwarding_test_support.h"
#include "pentatron/parallel_layers/test_support.h"

// Groups that tell a test of their collectives and leave out those that it names: a missing
// collective, with nothing of it in the code under test. Only tests include it.
namespace pentatron::test_support {

// What a rank's tensor-parallel groups do and whom they tell. Sums and gathers are counted from 0.
struct GroupWatch {
  int count = 0;
  std::function<bool(int number)> leave_out = {};
  std::function<void(int number, const std::string& what)> on_start = {};
  std::function<void(int number)> on_wait = {};
};

class WatchedGroup final : public comm::testing_support::ForwardingGroup {
 public:
  WatchedGroup(std::unique_ptr<comm::Group> inner, GroupWatch& watch)
      : ForwardingGroup(std::move(inner)), watch_(watch) {}

  comm::WorkPtr all_reduce(Tensor t, comm::ReduceOp op) override {
    return watched(
        "all_reduce", [&] { return real().all_reduce(t, op); }, [] {});
  }
  comm::WorkPtr all_gather(Tensor out, Tensor in) override {
    return watched(
        "all_gather", [&] { return real().all_gather(out, in); },
        [&] {
          for (std::int64_t member = 0; member < size(); ++member) {
            out.narrow(0, member * in.size(0), in.size(0)).copy_(in);
          }
        });
  }
  comm::WorkPtr reduce_scatter(Tensor out, Tensor in, comm::ReduceOp op) override {
    return watched(
        "reduce_scatter", [&] { return real().reduce_scatter(out, in, op); },
        [&] { out.copy_(in.narrow(0, rank() * out.size(0), out.size(0))); });
  }

 private:
  class WatchedWork final : public comm::Work {
   public:
    WatchedWork(comm::WorkPtr inner, std::function<void()> on_wait)
        : inner_(std::move(inner)), on_wait_(std::move(on_wait)) {}
    void wait() override {
      if (on_wait_) std::exchange(on_wait_, nullptr)();
      if (inner_ != nullptr) inner_->wait();
    }

   private:
    comm::WorkPtr inner_;
    std::function<void()> on_wait_;
  };

  template <typename Run, typename Instead>
  comm::WorkPtr watched(const std::string& what, const Run& run, const Instead& instead) {
    const int number = watch_.count++;
    if (watch_.on_start) watch_.on_start(number, what);
    comm::WorkPtr inner;
    if (watch_.leave_out && watch_.leave_out(number)) {
      instead();
    } else {
      inner = run();
    }
    std::function<void()> on_wait;
    if (watch_.on_wait) on_wait = [this, number] { watch_.on_wait(number); };
    return std::make_unique<WatchedWork>(std::move(inner), std::move(on_wait));
  }

  GroupWatch& watch_;
};

// Watches all groups of more than one rank.
class WatchedBackend final : public comm::testing_support::ForwardingBackend {
 public:
  WatchedBackend(comm::Backend& real, GroupWatch& watch) : ForwardingBackend(real), watch_(watch) {}

 private:
  std::unique_ptr<comm::Group> wrap(std::unique_ptr<comm::Group> group) override {
    if (group->size() == 1) return group;
    return std::make_unique<WatchedGroup>(std::move(group), watch_);
  }

  GroupWatch& watch_;
};

// run_layout() whose bodies get the watch of their rank.
inline void run_watched(
    const Layout& layout, const PrecisionPolicy& policy,
    const std::function<void(const parallel_layers::LeafContext&, GroupWatch&)>& body) {
  comm::ThreadsOptions options;
  options.world_size = layout.tensor_size;
  options.timeout = std::chrono::milliseconds(30'000);
  comm::run_threads(options, [&](comm::Backend& threads) {
    GroupWatch watch;
    WatchedBackend backend(threads, watch);
    in_layout(backend, layout, policy,
              [&](const parallel_layers::LeafContext& context) { body(context, watch); });
  });
}

}  // namespace pentatron::test_support
