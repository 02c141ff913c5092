// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <memory>
#include <string_view>
#include <vector>

#include "pentatron/tensor/tensor.h"
#include "pentatron/tensor/weight_ref.h"

// The op seam. One file (backward.cc) derives from the library's autograd node; ops see only this
// header.
namespace pentatron::ops {

// The backward half of an op. Holds Saved activations and WeightRefs, never outputs.
class Backward {
 public:
  virtual ~Backward() = default;
  // One gradient per output comes in (undefined: no gradient flows there), one per input of
  // attach() goes out (undefined: none). Runs once, without grad mode; a second backward is a
  // kInternal error, second derivatives are kUnsupported.
  [[nodiscard]] virtual std::vector<Tensor> apply(std::vector<Tensor> output_grads) = 0;
  // Drops everything saved.
  virtual void release() = 0;
  [[nodiscard]] virtual std::string_view name() const = 0;
};

// Makes `outputs` (fresh tensors computed without grad mode, not views of inputs) results of a node
// whose inputs are `inputs`. A node is made when grad mode is on and (an input requires grad or
// `force`); `force` serves ops without differentiable inputs (an embedding). Gradients of an edge
// have the dtype of the output, fp8 outputs bf16. Undefined inputs are allowed. Outputs that are
// not fresh floating-point tensors: kInternal.
void attach(std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
            std::unique_ptr<Backward> backward, bool force = false);
// For one output.
[[nodiscard]] Tensor attach(Tensor output, const std::vector<Tensor>& inputs,
                            std::unique_ptr<Backward> backward, bool force = false);
// True when attach would make a node: ops ask before they save anything.
[[nodiscard]] bool needs_backward(const std::vector<Tensor>& inputs, bool force = false);

// A gradient edge without its tensor: what a pipeline stage keeps after it has sent an activation
// on.
class GradientEdge final {
 public:
  GradientEdge();
  explicit GradientEdge(const Tensor& output);
  ~GradientEdge();
  GradientEdge(GradientEdge&&) noexcept;
  GradientEdge& operator=(GradientEdge&&) noexcept;
  [[nodiscard]] bool defined() const;

 private:
  friend void run_backward(const std::vector<GradientEdge*>&, const std::vector<Tensor>&);
  struct State;
  std::unique_ptr<State> state_;
};

// Runs backward from the edges with the given gradients on the calling thread; leaves get .grad().
// An edge without graph: kInternal.
void run_backward(const std::vector<GradientEdge*>& edges, const std::vector<Tensor>& gradients);
void run_backward(const Tensor& output, const Tensor& gradient);

// The hook for a user's module of plain library ops: the weight as a tensor of the graph; the
// gradient that backward brings to it is added into the weight's slot.
[[nodiscard]] Tensor as_graph_tensor(WeightRef& weight);

}  // namespace pentatron::ops
