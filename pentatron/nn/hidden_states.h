// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pentatron/tensor/tensor.h"

namespace pentatron::nn {

// Activations that are taken out of one micro-batch's forward, by the names of the modules that
// make them: "decoder.layers.3" (what the layer leaves), "decoder.layers.3.input_layernorm",
// "decoder.layers.3.pre_mlp_layernorm", "decoder.final_layernorm". [local rows, hidden]; they keep
// their graph.
class HiddenStates final {
 public:
  HiddenStates() = default;
  explicit HiddenStates(const std::vector<std::string>& wanted) {
    for (const std::string& name : wanted) taken_.emplace(name, Tensor());
  }
  [[nodiscard]] bool wants(std::string_view name) const { return taken_.contains(name); }
  void put(std::string_view name, Tensor x) {
    const auto found = taken_.find(name);
    if (found != taken_.end()) found->second = std::move(x);
  }
  // Undefined: no module of that name ran.
  [[nodiscard]] Tensor at(std::string_view name) const {
    const auto found = taken_.find(name);
    return found == taken_.end() ? Tensor() : found->second;
  }

 private:
  std::map<std::string, Tensor, std::less<>> taken_;
};

}  // namespace pentatron::nn
