// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/backward.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/graph_runner.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/saved.h"

namespace pentatron::ops {
namespace {

namespace autograd = torch::autograd;

// The one subclass of the library's node: runs a Backward once and lets go of it.
class OpNode final : public autograd::Node {
 public:
  explicit OpNode(std::unique_ptr<Backward> backward)
      : name_(backward->name()), backward_(std::move(backward)) {}

  autograd::variable_list apply(autograd::variable_list&& output_grads) override {
    PENTATRON_CHECK(backward_ != nullptr, kInternal,
                    "{}: a second backward through the same node; each forward has one", name_);
    PENTATRON_CHECK(!c10::GradMode::is_enabled(), kUnsupported,
                    "{}: second derivatives (create_graph) are not supported", name_);
    const tensor::NoGrad no_grad;
    const std::unique_ptr<Backward> backward = std::move(backward_);
    autograd::variable_list input_grads = backward->apply(std::move(output_grads));
    backward->release();
    check(input_grads);
    return input_grads;
  }

  void release_variables() override {
    if (backward_ != nullptr) backward_->release();
    backward_ = nullptr;
  }

  std::string name() const override { return name_; }

 private:
  // The engine would sum a gradient of a wrong but broadcastable shape in silence.
  void check(const autograd::variable_list& input_grads) const {
    PENTATRON_CHECK(input_grads.size() == num_outputs(), kInternal,
                    "{}: {} gradients for {} inputs", name_, input_grads.size(), num_outputs());
    for (std::size_t i = 0; i < input_grads.size(); ++i) {
      const autograd::Edge& edge = next_edge(i);
      if (!edge.is_valid() || !input_grads[i].defined()) continue;
      PENTATRON_CHECK(edge.function->input_metadata(edge.input_nr).is_same_shape(input_grads[i]),
                      kInternal, "{}: the gradient {} of input {} has another shape than the input",
                      name_, tensor::describe(input_grads[i]), i);
    }
  }

  std::string name_;
  std::unique_ptr<Backward> backward_;
};

// The engine casts gradients to this dtype: fp8 payloads travel beside a bf16 edge.
DType gradient_dtype(const Tensor& output) {
  const DType dtype = output.scalar_type();
  return c10::isFloat8Type(dtype) ? DType::BFloat16 : dtype;
}

class WeightTensorBackward final : public Backward {
 public:
  explicit WeightTensorBackward(WeightRef& weight) : weight_(&weight) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (output_grads[0].defined()) write_grad(*weight_, output_grads[0]);
    return {};
  }
  void release() override {}
  std::string_view name() const override { return "WeightTensor"; }

 private:
  WeightRef* weight_;
};

}  // namespace

bool needs_backward(const std::vector<Tensor>& inputs, bool force) {
  if (!c10::GradMode::is_enabled()) return false;
  if (force) return true;
  for (const Tensor& input : inputs) {
    if (input.defined() && input.requires_grad()) return true;
  }
  return false;
}

void attach(std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
            std::unique_ptr<Backward> backward, bool force) {
  PENTATRON_CHECK(backward != nullptr, kInternal, "attach without a backward");
  if (!needs_backward(inputs, force)) return;
  const auto node = std::shared_ptr<OpNode>(new OpNode(std::move(backward)), autograd::deleteNode);
  autograd::edge_list edges;
  edges.reserve(inputs.size());
  for (const Tensor& input : inputs) {
    const bool differentiable = input.defined() && input.requires_grad();
    edges.push_back(differentiable ? autograd::impl::gradient_edge(input) : autograd::Edge());
  }
  node->set_next_edges(std::move(edges));
  for (Tensor& output : outputs) {
    PENTATRON_CHECK(output.defined() && output.is_floating_point() && !output.requires_grad(),
                    kInternal,
                    "{}: attach wants fresh floating-point outputs without graph, got {}",
                    node->name(), tensor::describe(output));
    const std::uint32_t number =
        node->add_input_metadata(output.options(), output.sym_sizes(), /*is_tensor_subclass=*/false,
                                 /*is_nested=*/false, gradient_dtype(output));
    autograd::impl::set_gradient_edge(output, autograd::Edge(node, number));
  }
}

Tensor attach(Tensor output, const std::vector<Tensor>& inputs, std::unique_ptr<Backward> backward,
              bool force) {
  std::vector<Tensor> outputs{std::move(output)};
  attach(outputs, inputs, std::move(backward), force);
  return std::move(outputs[0]);
}

struct GradientEdge::State {
  autograd::Edge edge;
};

GradientEdge::GradientEdge() = default;
GradientEdge::~GradientEdge() = default;
GradientEdge::GradientEdge(GradientEdge&&) noexcept = default;
GradientEdge& GradientEdge::operator=(GradientEdge&&) noexcept = default;
GradientEdge::GradientEdge(const Tensor& output) {
  if (!output.defined() || !output.requires_grad()) return;
  state_ = std::make_unique<State>(State{autograd::impl::gradient_edge(output)});
}
bool GradientEdge::defined() const { return state_ != nullptr; }

void run_backward(const std::vector<GradientEdge*>& edges, const std::vector<Tensor>& gradients) {
  PENTATRON_CHECK(edges.size() == gradients.size() && !edges.empty(), kInternal,
                  "run_backward: {} edges and {} gradients", edges.size(), gradients.size());
  autograd::edge_list roots;
  for (const GradientEdge* edge : edges) {
    PENTATRON_CHECK(edge != nullptr && edge->defined(), kInternal,
                    "run_backward from a tensor without graph: nothing in it requires a gradient");
    roots.push_back(edge->state_->edge);
  }
  run_graph(roots, gradients);
}

void run_backward(const Tensor& output, const Tensor& gradient) {
  GradientEdge edge(output);
  run_backward({&edge}, {gradient});
}

Tensor as_graph_tensor(WeightRef& weight) {
  const Tensor data = weight.forward_weight().variable_data();
  if (!weight.trainable()) return data;
  return attach(data, {}, std::make_unique<WeightTensorBackward>(weight), /*force=*/true);
}

}  // namespace pentatron::ops
