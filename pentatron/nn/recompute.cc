// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/recompute.h"

#include <memory>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/saved.h"

namespace pentatron::nn {
namespace {

constexpr std::string_view kName = "Recompute";

class RecomputeBackward final : public ops::Backward {
 public:
  RecomputeBackward(const std::vector<Tensor>& inputs, const StepContext& step, UnitBody body,
                    SavePolicy* saves)
      : step_(step), body_(std::move(body)) {
    ops::Scope scope = step.scope;
    if (saves != nullptr) scope.saves = saves;
    for (const Tensor& input : inputs) {
      inputs_.push_back({scope.save(input, kName), input.requires_grad()});
    }
  }

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    std::vector<Tensor> leaves;
    for (const Input& input : inputs_) {
      leaves.push_back(input.tensor.get().variable_data());
      leaves.back().requires_grad_(input.learns);
    }
    run_backward(leaves, std::move(output_grads));
    std::vector<Tensor> input_grads;
    for (const Tensor& leaf : leaves) {
      input_grads.push_back(leaf.requires_grad() ? leaf.grad() : Tensor());
    }
    return input_grads;
  }
  void release() override {
    inputs_.clear();
    body_ = nullptr;
  }
  std::string_view name() const override { return kName; }

 private:
  struct Input {
    Saved tensor;
    bool learns;
  };

  void run_backward(const std::vector<Tensor>& leaves, std::vector<Tensor> output_grads) {
    std::vector<ops::GradientEdge> edges;
    {
      const tensor::EnableGrad with_grad;
      StepContext step = step_;
      step.phase = Phase::kRecompute;
      for (const Tensor& output : body_(leaves, step)) edges.emplace_back(output);
    }
    std::vector<ops::GradientEdge*> from;
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < edges.size(); ++i) {
      if (!edges[i].defined() || !output_grads.at(i).defined()) continue;
      from.push_back(&edges[i]);
      gradients.push_back(std::move(output_grads[i]));
    }
    if (!from.empty()) ops::run_backward(from, gradients);
  }

  StepContext step_;
  UnitBody body_;
  std::vector<Input> inputs_;
};

}  // namespace

std::vector<Tensor> recomputed(const std::vector<Tensor>& inputs, StepContext& step,
                               const UnitBody& body, SavePolicy* saves) {
  PENTATRON_CHECK(!inputs.empty(), kInternal, "nothing to recompute from");
  if (!ops::needs_backward(inputs, /*force=*/true)) return body(inputs, step);
  std::vector<Tensor> outputs;
  {
    const tensor::NoGrad no_grad;
    outputs = body(inputs, step);
  }
  // An input may be returned unchanged: outputs of a node must be tensors of its own.
  for (Tensor& output : outputs) output = output.variable_data();
  ops::attach(outputs, inputs, std::make_unique<RecomputeBackward>(inputs, step, body, saves),
              /*force=*/true);
  return outputs;
}

Tensor recomputed(bool when, const Tensor& input, StepContext& step,
                  const std::function<Tensor(const Tensor&, StepContext&)>& body,
                  SavePolicy* saves) {
  if (!when) return body(input, step);
  const UnitBody as_list = [body](const std::vector<Tensor>& given, StepContext& inner) {
    return std::vector<Tensor>{body(given.at(0), inner)};
  };
  return recomputed(std::vector<Tensor>{input}, step, as_list, saves).at(0);
}

}  // namespace pentatron::nn
