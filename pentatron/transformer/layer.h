// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "pentatron/parallel_layers/gathered_linear.h"
#include "pentatron/parallel_layers/norm.h"
#include "pentatron/parallel_layers/residual_dropout.h"
#include "pentatron/transformer/attention.h"
#include "pentatron/transformer/layer_saves.h"
#include "pentatron/transformer/mlp.h"

namespace pentatron::transformer {

// The weights of a TransformerLayer, named from the layer on ("self_attention.linear_qkv").
[[nodiscard]] std::vector<parallel_layers::LeafRule> layer_rules(const config::ModelConfig& config,
                                                                 const LayerSpec& spec);

// What runs from layer to layer: the residual stream and what is still to be added to it, so that
// the next norm can add it in its own pass over memory.
struct ResidualStream {
  Tensor x_th;
  Tensor delta_th = {};  // undefined: nothing

  [[nodiscard]] Tensor sum() const { return delta_th.defined() ? x_th.add(delta_th) : x_th; }
};

// A transformer layer as its spec says. Usual is the pre-norm one: x + drop(attention(norm x)),
// then the same with the mlp; of heterogeneous layers either half may be a linear layer, or not
// there. [local rows, hidden] -> the same shape and dtype, which is that of the residual stream.
class TransformerLayer final : public nn::Module {
 public:
  // `saves`: what becomes of its activations.
  TransformerLayer(const parallel_layers::LeafContext& context, const nn::ParameterPlan& plan,
                   const std::string& name, const config::ModelConfig& config,
                   const LayerSpec& spec, LayerPositions positions,
                   std::unique_ptr<LayerSaves> saves, std::int64_t cache_layer);
  [[nodiscard]] Tensor forward(const Tensor& x_th, nn::StepContext& step);
  [[nodiscard]] ResidualStream forward(const ResidualStream& in, nn::StepContext& step);

 private:
  // Null where it is not wanted.
  parallel_layers::Norm* add_norm(bool wanted, const parallel_layers::LeafContext& context,
                                  const nn::ParameterPlan& plan, const std::string& name,
                                  const config::ModelConfig& config);

  // A norm's output, to whoever takes hidden states.
  void offer(const char* norm, const Tensor& x_th, const nn::StepContext& step) const;

  // What mixer and feed-forward give before they are added.
  [[nodiscard]] Tensor attended(const Tensor& in_th, nn::StepContext& step);
  [[nodiscard]] Tensor fed_forward(const Tensor& in_th, nn::StepContext& step);

  // The norms before the two halves, the parts attn_norm and mlp_norm.
  [[nodiscard]] parallel_layers::Norm::Added add_and_norm(parallel_layers::Norm& norm,
                                                          const ResidualStream& in,
                                                          nn::StepContext& step) const;
  // In the compute dtype, whatever the residual stream has; without a norm the values as they are.
  [[nodiscard]] Tensor normalised(parallel_layers::Norm* norm, OffloadedModule part,
                                  const Tensor& x_th, nn::StepContext& step) const;

  // The layer itself, under the policy that forward() sets.
  [[nodiscard]] ResidualStream forward_layer(const ResidualStream& in, nn::StepContext& step);

  std::string name_;  // under which its norms' outputs are offered (nn/hidden_states.h)
  bool recompute_mlp_;
  std::unique_ptr<LayerSaves> saves_;
  bool parallel_;
  bool shared_norm_;
  bool residual_after_norm_;
  parallel_layers::Norm* input_norm_;   // null: none, as the other norms
  SelfAttention* attention_ = nullptr;  // null: a linear layer, or none
  parallel_layers::GatheredLinear* linear_attention_ = nullptr;
  parallel_layers::Norm* post_attention_norm_ = nullptr;
  parallel_layers::ResidualDropout* attention_dropout_ = nullptr;
  parallel_layers::Norm* pre_mlp_norm_ = nullptr;
  Mlp* mlp_ = nullptr;  // likewise
  parallel_layers::GatheredLinear* linear_mlp_ = nullptr;
  parallel_layers::Norm* post_mlp_norm_ = nullptr;
  parallel_layers::ResidualDropout* mlp_dropout_ = nullptr;
};

}  // namespace pentatron::transformer
