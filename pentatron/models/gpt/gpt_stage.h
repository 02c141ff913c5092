// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "pentatron/models/gpt/sharding.h"
#include "pentatron/nn/stage.h"
#include "pentatron/parallel_layers/norm.h"
#include "pentatron/parallel_layers/position_embedding.h"
#include "pentatron/parallel_layers/residual_dropout.h"
#include "pentatron/parallel_layers/vocab_embedding.h"
#include "pentatron/parallel_layers/vocab_head.h"
#include "pentatron/transformer/block.h"

namespace pentatron::models {

// Token (and learned position) embeddings with their dropout: -> [local rows, hidden] in the dtype
// of the residual stream.
class GptEmbedding final : public nn::Module {
 public:
  GptEmbedding(const parallel_layers::LeafContext& context, const nn::ParameterPlan& plan,
               const config::ModelConfig& config);
  [[nodiscard]] Tensor forward(nn::StepContext& step);
  [[nodiscard]] nn::Parameter& word_weight() { return words_.weight(); }

 private:
  parallel_layers::VocabEmbedding& words_;
  double multiplier_;      // of the word embeddings
  double mup_multiplier_;  // of these and the positions together
  DType residual_;
  parallel_layers::PositionEmbedding* positions_ = nullptr;  // null: none learned
  parallel_layers::ResidualDropout* dropout_ = nullptr;
};

// Final norm and output layer.
class GptHead final : public nn::Module {
 public:
  // `tied_weight`: the embedding's, which is the stage's first unit; null: the head's weight is in
  // the plan, named `weight_name`.
  GptHead(const parallel_layers::LeafContext& context, const nn::ParameterPlan& plan,
          const config::ModelConfig& config, const std::string& weight_name,
          nn::Parameter* tied_weight);
  // hidden [local rows, hidden]; results as those of parallel_layers::VocabHead.
  // With a teacher (StepContext::distillation): parallel_layers::distilled_loss.
  [[nodiscard]] Tensor loss(const Tensor& hidden_th, nn::StepContext& step);
  [[nodiscard]] Tensor logits(const Tensor& hidden_th, nn::StepContext& step);

 private:
  // What the output layer reads. The factor of the logits stands here, on fewer numbers.
  [[nodiscard]] Tensor normalised(const Tensor& hidden_th, nn::StepContext& step);

  parallel_layers::LeafContext context_;
  parallel_layers::Norm& norm_;
  double logit_multiplier_;
  ops::Recipe recipe_;
  parallel_layers::VocabHead* output_ = nullptr;
};

// A pipeline stage of a GPT: GPT-2 kind (learned positions, LayerNorm, GELU, biases, tied) or Llama
// kind (rope, RMSNorm, SwiGLU, grouped queries, no biases, untied), as the config says. Edges carry
// "hidden" [local rows, hidden] in the dtype of the residual stream. Sizes that do not fit
// together: kConfig; an input that is not what input_spec() says: kInternal.
class GptStage final : public nn::Stage {
 public:
  GptStage(const config::ModelConfig& config, const parallel_layers::LeafContext& context,
           const config::StagePlan& stage);
  // Other layers than the options say, one spec for each of the model.
  GptStage(const config::ModelConfig& config, const parallel_layers::LeafContext& context,
           const config::StagePlan& stage, const std::vector<transformer::LayerSpec>& specs);

  [[nodiscard]] nn::Bundle forward(const nn::Bundle& input, nn::StepContext& step) override;
  [[nodiscard]] nn::BundleSpec input_spec(const Batch& batch) const override;
  [[nodiscard]] nn::BundleSpec output_spec(const Batch& batch) const override;
  // "embedding" (first stage), "decoder.layers.N", "head" (last stage).
  [[nodiscard]] std::vector<nn::Unit> units() override;

 private:
  [[nodiscard]] Tensor hidden_states(const nn::Bundle& input, nn::StepContext& step);
  [[nodiscard]] nn::BundleSpec hidden_spec(const Batch& batch) const;

  config::ModelConfig config_;
  parallel_layers::LeafContext context_;
  nn::ParameterPlan plan_;
  config::StagePlan stage_;
  GptEmbedding* embedding_ = nullptr;  // null: elsewhere
  transformer::TransformerBlock* decoder_ = nullptr;
  GptHead* head_ = nullptr;  // null: elsewhere
};

}  // namespace pentatron::models
