// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/unit.h"

#include <memory>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/nn/unit_runner.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/unit_events.h"

namespace pentatron::nn {
namespace {

// Names the running unit.
class CurrentUnit {
 public:
  CurrentUnit(StepContext& step, int unit)
      : step_(step), before_(std::exchange(step.scope.unit, unit)) {}
  ~CurrentUnit() { step_.scope.unit = before_; }
  CurrentUnit(const CurrentUnit&) = delete;
  CurrentUnit& operator=(const CurrentUnit&) = delete;

 private:
  StepContext& step_;
  int before_;
};

// A unit without inputs has no border below at which its backward could end: its graph is its own
// and runs inside this node.
class EnclosedBackward final : public ops::Backward {
 public:
  EnclosedBackward(const std::vector<Tensor>& outputs, int unit, ops::UnitEventSink& sink)
      : unit_(unit), sink_(&sink) {
    for (const Tensor& output : outputs) edges_.emplace_back(output);
  }
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    sink_->on_backward_begin(unit_);
    std::vector<ops::GradientEdge*> edges;
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < edges_.size(); ++i) {
      if (!edges_[i].defined() || !output_grads[i].defined()) continue;
      edges.push_back(&edges_[i]);
      gradients.push_back(std::move(output_grads[i]));
    }
    if (!edges.empty()) ops::run_backward(edges, gradients);
    sink_->on_backward_end(unit_);
    return {};
  }
  void release() override { edges_.clear(); }
  std::string_view name() const override { return "Unit"; }

 private:
  std::vector<ops::GradientEdge> edges_;
  int unit_;
  ops::UnitEventSink* sink_;
};

std::vector<Tensor> run_enclosed(StepContext& step, const UnitBody& body) {
  ops::UnitEventSink& sink = *step.events;
  sink.on_forward_begin(step.scope.unit);
  std::vector<Tensor> outputs = body({}, step);
  if (ops::needs_backward({}, /*force=*/true)) {
    auto backward = std::make_unique<EnclosedBackward>(outputs, step.scope.unit, sink);
    for (Tensor& output : outputs) output = output.detach();
    ops::attach(outputs, {}, std::move(backward), /*force=*/true);
  }
  sink.on_forward_end(step.scope.unit);
  return outputs;
}

}  // namespace

std::vector<Tensor> run_unit(int position, const std::vector<Tensor>& inputs, StepContext& step,
                             const UnitBody& body) {
  const CurrentUnit current(step, step.first_unit + position);
  if (step.events == nullptr) return body(inputs, step);
  if (inputs.empty()) return run_enclosed(step, body);
  const std::vector<Tensor> inside = ops::unit_begin(inputs, step.scope.unit, *step.events);
  auto* runner = dynamic_cast<UnitRunner*>(step.events);
  return ops::unit_end(runner != nullptr ? runner->run(inside, step, body) : body(inside, step),
                       step.scope.unit, *step.events);
}

Tensor run_unit(int position, const Tensor& input, StepContext& step,
                const std::function<Tensor(const Tensor&, StepContext&)>& body) {
  std::vector<Tensor> inputs;
  if (input.defined()) inputs.push_back(input);
  const UnitBody as_list = [body](const std::vector<Tensor>& given, StepContext& inner) {
    return std::vector<Tensor>{body(given.empty() ? Tensor() : given[0], inner)};
  };
  return run_unit(position, inputs, step, as_list).at(0);
}

}  // namespace pentatron::nn
