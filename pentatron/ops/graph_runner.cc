// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/graph_runner.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

namespace pentatron::ops {
namespace {

namespace autograd = torch::autograd;

struct Visit {
  std::shared_ptr<autograd::Node> node;
  int waits_for = 0;  // edges that have not delivered yet
  std::vector<Tensor> gradients{};
};

// What users registered on the tensors whose gradients these are, then on the node itself.
std::vector<Tensor> call_pre_hooks(autograd::Node& node, std::vector<Tensor> gradients) {
  for (const auto& hook : node.tensor_pre_hooks()) gradients = (*hook)(gradients);
  for (const auto& [output, hook] : node.retains_grad_hooks()) gradients = (*hook)(gradients);
  for (const auto& hook : node.pre_hooks()) gradients = (*hook)(gradients);
  return gradients;
}

std::vector<Tensor> call_with_hooks(autograd::Node& node, std::vector<Tensor> gradients) {
  gradients = call_pre_hooks(node, std::move(gradients));
  if (node.post_hooks().empty()) return node(std::move(gradients));
  std::vector<Tensor> results = node(std::vector<Tensor>(gradients));
  for (const auto& hook : node.post_hooks()) results = (*hook)(results, gradients);
  return results;
}

// As the engine: a sum goes into the first gradient's own memory where nobody else holds it.
void add_gradient(Tensor& sum, Tensor gradient) {
  if (!gradient.defined()) return;
  if (!sum.defined()) {
    sum = std::move(gradient);
  } else if (sum.use_count() == 1 && sum.has_storage() && sum.storage().use_count() == 1 &&
             sum.is_non_overlapping_and_dense() && sum.sizes() == gradient.sizes()) {
    sum.add_(gradient);
  } else {
    sum = sum.add(gradient);
  }
}

class GraphRun {
 public:
  void explore(const autograd::edge_list& roots) {
    std::vector<autograd::Node*> open;
    for (const autograd::Edge& root : roots) enter(root, open);
    while (!open.empty()) {
      autograd::Node* node = open.back();
      open.pop_back();
      for (const autograd::Edge& edge : node->next_edges()) enter(edge, open);
    }
  }

  void run(const autograd::edge_list& roots, std::vector<Tensor> gradients) {
    deliver(roots, std::move(gradients), "the start of backward");
    while (!ready_.empty()) {
      std::pop_heap(ready_.begin(), ready_.end(), recorded_before);
      Visit visit = std::move(*ready_.back());
      ready_.pop_back();
      autograd::Node& node = *visit.node;
      node.will_release_variables();
      std::vector<Tensor> results = call_with_hooks(node, std::move(visit.gradients));
      node.release_variables();
      deliver(node.next_edges(), std::move(results), node.name());
    }
  }

 private:
  static bool recorded_before(const Visit* a, const Visit* b) {
    return a->node->sequence_nr() < b->node->sequence_nr();
  }

  void enter(const autograd::Edge& edge, std::vector<autograd::Node*>& open) {
    if (!edge.is_valid()) return;
    auto [at, is_new] = visits_.try_emplace(edge.function.get());
    if (is_new) {
      at->second.node = edge.function;
      at->second.gradients.resize(edge.function->num_inputs());
      open.push_back(edge.function.get());
    }
    ++at->second.waits_for;
  }

  void deliver(const autograd::edge_list& edges, std::vector<Tensor> gradients,
               const std::string& from) {
    autograd::validate_outputs(edges, gradients,
                               [&](const std::string& text) { return from + ": " + text; });
    for (std::size_t i = 0; i < edges.size(); ++i) {
      if (!edges[i].is_valid()) continue;
      Visit& visit = visits_.at(edges[i].function.get());
      add_gradient(visit.gradients.at(edges[i].input_nr), std::move(gradients[i]));
      if (--visit.waits_for > 0) continue;
      ready_.push_back(&visit);
      std::push_heap(ready_.begin(), ready_.end(), recorded_before);
    }
  }

  std::unordered_map<autograd::Node*, Visit> visits_;
  std::vector<Visit*> ready_;  // a heap: the node recorded last is on top
};

}  // namespace

void run_graph(const autograd::edge_list& roots, const std::vector<Tensor>& gradients) {
  GraphRun graph;
  graph.explore(roots);
  const c10::AutoGradMode records_nothing(false);
  graph.run(roots, gradients);
}

}  // namespace pentatron::ops
