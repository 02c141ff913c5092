// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/nn/shard_spec.h"

namespace pentatron::nn {

// One parameter of a rank before it exists.
struct PlannedParameter {
  std::string local_name;  // "decoder.layers.3.self_attention.linear_qkv.weight"
  ShardSpec spec;
  int layer = 0;  // -1: before the layers; num_layers: head
};

// All parameters of one rank, in the order in which its modules make them. Pure data: planners, dry
// runs and tests read it without allocating; leaf modules find their own shapes in it, so a module
// and the plan cannot disagree.
class ParameterPlan final {
 public:
  // Checks the spec (check_spec); a name that is there already is an internal error.
  void add(PlannedParameter parameter);
  // Null when there is none of this name (a leaf without bias).
  [[nodiscard]] const PlannedParameter* find(std::string_view local_name) const;
  // Internal error when there is none.
  [[nodiscard]] const PlannedParameter& at(std::string_view local_name) const;
  [[nodiscard]] const std::vector<PlannedParameter>& parameters() const { return parameters_; }
  // Sum of the local shapes' elements, padding included.
  [[nodiscard]] std::int64_t num_local_elements() const;

 private:
  std::vector<PlannedParameter> parameters_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

}  // namespace pentatron::nn
