// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/comm/backend.h"

// Groups and backends that hand everything on to real ones: a test derives from them and changes
// what it is about. Only tests include it.
namespace pentatron::comm::testing_support {

class ForwardingGroup : public Group {
 public:
  explicit ForwardingGroup(std::unique_ptr<Group> real) : real_(std::move(real)) {}

  [[nodiscard]] const std::string& name() const override { return real_->name(); }
  [[nodiscard]] int rank() const override { return real_->rank(); }
  [[nodiscard]] int size() const override { return real_->size(); }
  [[nodiscard]] const std::vector<std::int64_t>& world_ranks() const override {
    return real_->world_ranks();
  }
  [[nodiscard]] WorkPtr all_reduce(Tensor t, ReduceOp op) override {
    return real_->all_reduce(std::move(t), op);
  }
  [[nodiscard]] WorkPtr all_gather(Tensor out, Tensor in) override {
    return real_->all_gather(std::move(out), std::move(in));
  }
  [[nodiscard]] WorkPtr reduce_scatter(Tensor out, Tensor in, ReduceOp op) override {
    return real_->reduce_scatter(std::move(out), std::move(in), op);
  }
  [[nodiscard]] WorkPtr all_to_all(Tensor out, Tensor in, std::vector<std::int64_t> out_splits,
                                   std::vector<std::int64_t> in_splits) override {
    return real_->all_to_all(std::move(out), std::move(in), std::move(out_splits),
                             std::move(in_splits));
  }
  [[nodiscard]] WorkPtr broadcast(Tensor t, int root) override {
    return real_->broadcast(std::move(t), root);
  }
  [[nodiscard]] WorkPtr send(Tensor t, int peer) override {
    return real_->send(std::move(t), peer);
  }
  [[nodiscard]] WorkPtr recv(Tensor t, int peer) override {
    return real_->recv(std::move(t), peer);
  }
  void barrier() override { real_->barrier(); }

 protected:
  [[nodiscard]] Group& real() const { return *real_; }

 private:
  std::unique_ptr<Group> real_;
};

// Its groups are what `wrap` makes of the real ones.
class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(Backend& real) : real_(real) {}  // which outlives this

  [[nodiscard]] std::string name() const override { return real_.name(); }
  [[nodiscard]] std::int64_t rank() const override { return real_.rank(); }
  [[nodiscard]] std::int64_t world_size() const override { return real_.world_size(); }
  [[nodiscard]] std::unique_ptr<Group> make_group(const std::vector<std::int64_t>& ranks,
                                                  const std::string& name) override {
    return wrap(real_.make_group(ranks, name));
  }
  void poison(const std::string& message) override { real_.poison(message); }
  void shutdown() override { real_.shutdown(); }

 protected:
  [[nodiscard]] virtual std::unique_ptr<Group> wrap(std::unique_ptr<Group> real) = 0;
  [[nodiscard]] Backend& real() const { return real_; }

 private:
  Backend& real_;
};

}  // namespace pentatron::comm::testing_support
