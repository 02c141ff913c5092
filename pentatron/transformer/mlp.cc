// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/mlp.h"

#include "pentatron/ops/activation.h"

namespace pentatron::transformer {

using parallel_layers::ColumnLinear;
using parallel_layers::Cut;
using parallel_layers::LeafPart;
using parallel_layers::LeafRule;
using parallel_layers::RowLinear;

std::vector<LeafRule> mlp_rules(const config::ModelConfig& c, const MlpSpec& spec) {
  const std::int64_t f = spec.ffn_hidden_size;
  const Cut channels{.axis = "tp", .units = f, .option = "--ffn-hidden-size"};
  const std::vector<LeafPart> fc1 =
      spec.gate
          ? std::vector<LeafPart>{{.suffix = "gate", .rows = f, .cut = channels, .module = "gate"},
                                  {.suffix = "up", .rows = f, .cut = channels, .module = "up"}}
          : std::vector<LeafPart>{{.rows = f, .cut = channels, .module = "up"}};
  return {
      {.name = "linear_fc1",
       .parts = fc1,
       .columns = c.hidden_size,
       .bias = c.add_bias_linear || c.add_mlp_bias,
       .std = hidden_init_std(c),
       .xavier = c.init_method_xavier_uniform},
      {.name = "linear_fc2",
       .parts = {{.rows = c.hidden_size, .cut = channels, .cut_columns = true, .module = "down"}},
       .columns = f,
       .bias = c.add_bias_linear || c.add_mlp_bias,
       .std = output_init_std(c),
       .xavier = c.init_method_xavier_uniform}};
}

Mlp::Mlp(const parallel_layers::LeafContext& context, const nn::ParameterPlan& plan,
         const std::string& name, const MlpSpec& spec, const parallel_layers::AdapterForm& adapters)
    : activation_(spec.activation),
      gate_(spec.gate),
      fc1_(
          add_child(std::make_unique<ColumnLinear>(context, plan, name + ".linear_fc1", adapters))),
      fc2_(add_child(std::make_unique<RowLinear>(context, plan, name + ".linear_fc2", adapters))) {}

Tensor Mlp::forward(const Tensor& x_th, nn::StepContext& step) {
  return fc2_.forward(gate_ ? ops::gated(*gate_, fc1_.forward(x_th, step), step.scope)
                            : fc1_.forward_activation(x_th, activation_, step),
                      step);
}

}  // namespace pentatron::transformer
