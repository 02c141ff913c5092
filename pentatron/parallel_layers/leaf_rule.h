// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "pentatron/nn/parameter_plan.h"
#include "pentatron/parallel_layers/adapter_form.h"
#include "pentatron/parallel_layers/norm_form.h"
#include "pentatron/parallel_layers/tensor_layout.h"

// What a leaf's weight and bias are before they are laid out on ranks. Each module states the rules
// of its leaves next to its forward; a model's sharding file puts them together.
namespace pentatron::parallel_layers {

enum class LeafKind {
  kMatrix,  // a linear layer or a table: rows x columns, normally distributed
  kNorm,    // a vector that starts at one
  kVector,  // one number a row, normally distributed; named without ".weight"
};

struct LeafPart {
  std::string suffix = {};   // "q"; empty: the weight is one part
  std::int64_t rows = 0;     // outputs
  Cut cut = {};              // none: whole on every rank
  bool cut_columns = false;  // through the inputs instead of the outputs
  // Its name in --lora-target-modules; empty: no adapter is ever added to it.
  std::string module = {};
};

struct LeafRule {
  std::string name;  // local to the module that states it: "linear_qkv"
  LeafKind kind = LeafKind::kMatrix;
  std::vector<LeafPart> parts;
  std::int64_t columns = 0;  // inputs of a matrix
  bool bias = false;
  double std = 0.0;              // of a matrix's initial values
  std::int64_t padded_rows = 0;  // PartRule::padded_rows
  // A matrix starts uniform in +-sqrt(6 / (rows + columns)) instead (X. Glorot, Y. Bengio, 2010),
  // over the rows of all its parts.
  bool xavier = false;
  bool starts_at_zero = false;  // a norm: zero instead of one
  nn::ShardRole role = nn::ShardRole::kMatrix;
  // A norm of what is cut over the tensor-parallel ranks (a rank's own heads): its gradient is
  // partial on each.
  bool of_cut_rows = false;
  AdapterForm adapter = {};  // of the parts that it adapts
};

[[nodiscard]] LeafRule norm_rule(std::string name, std::int64_t width, const NormForm& form);

// Adds "<prefix><name>.weight" (of a vector "<prefix><name>") and, where the rule has one, ".bias".
// A bias follows the output: split with the rows, whole where only the input is split. Behind them
// the parts' adapters (config/adapter_names.h): one parameter "<prefix><name>.lora_a" of all
// adapted parts, for each a ".lora_b" and, for DoRA, a ".lora_magnitude", cut as the weight is.
// `unit` is PlannedParameter::layer. Errors: those of lay_out().
void add_leaf(nn::ParameterPlan& plan, const LeafRule& rule, const std::string& prefix, int unit,
              const TensorLayout& layout);

}  // namespace pentatron::parallel_layers
