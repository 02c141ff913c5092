// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/nn/buffer.h"
#include "pentatron/nn/parameter.h"
#include "pentatron/nn/step_context.h"

namespace pentatron::nn {

// Owns parameters, buffers and children in order of registration. Typed modules add `Tensor
// forward(const Tensor& x, StepContext&)`.
class Module {
 public:
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Depth first, in order of registration: the order is the same on every rank of a stage.
  void for_each_parameter(const std::function<void(Parameter&)>& visit);
  [[nodiscard]] std::vector<Parameter*> parameters();
  // Likewise for what is not trained.
  void for_each_buffer(const std::function<void(Buffer&)>& visit);
  [[nodiscard]] std::vector<Buffer*> buffers();
  // Likewise what the modules add to the step's ledger.
  void for_each_scalar(const std::function<void(const LedgerEntry&)>& visit) const;
  // Once in each optimizer step, after the update: every module moves its Buffers (expert biases,
  // scale histories). Work of the device alone, so that a step can be recorded.
  void commit(const StepOutcome& outcome);

 protected:
  Module() = default;
  Parameter& add_parameter(std::unique_ptr<Parameter> parameter);
  Buffer& add_buffer(std::unique_ptr<Buffer> buffer);
  // What this module adds to the step's ledger.
  void declare_scalar(LedgerEntry entry) { scalars_.push_back(std::move(entry)); }
  // This module's part of commit(): writes through StepOutcome::update, which leaves out what a
  // skipped step must not change.
  virtual void commit_own(const StepOutcome& /*outcome*/) {}
  template <typename M>
  M& add_child(std::unique_ptr<M> child) {
    M& reference = *child;
    children_.push_back(std::move(child));
    order_.push_back({nullptr, nullptr, children_.back().get()});
    return reference;
  }

 private:
  struct Entry {
    Parameter* parameter;
    Buffer* buffer;
    Module* child;
  };
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::unique_ptr<Module>> children_;
  std::vector<Entry> order_;
  std::vector<LedgerEntry> scalars_;
};

}  // namespace pentatron::nn
