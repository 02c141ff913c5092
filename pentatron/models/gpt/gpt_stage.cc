// SPDX-License-Identifier: Apache-2.0
#include "pentatron/models/gpt/gpt_stage.h"

#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/config/choices.h"
#include "pentatron/nn/recipe_scope.h"
#include "pentatron/parallel_layers/distilled_loss.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::models {

using parallel_layers::LeafContext;
using parallel_layers::Norm;
using parallel_layers::PositionEmbedding;
using parallel_layers::ResidualDropout;
using parallel_layers::VocabEmbedding;
using parallel_layers::VocabHead;

namespace {
constexpr const char* kWordEmbeddings = "embedding.word_embeddings";
constexpr const char* kOutputLayer = "output_layer";
constexpr const char* kFinalNorm = "decoder.final_layernorm";
constexpr const char* kLoss = "lm loss";  // as nn::Stage declares it
constexpr int kEmbeddingUnit = 0;

// Of what runs from layer to layer and from stage to stage.
DType residual_dtype(const config::ModelConfig& config, const PrecisionPolicy& policy) {
  return config.fp32_residual_connection ? policy.statistics : policy.compute;
}

double rounded(double value, DType dtype) {
  return tensor::scalar(value, dtype).to(kAccumulationDType).item<double>();
}
}  // namespace

GptEmbedding::GptEmbedding(const LeafContext& context, const nn::ParameterPlan& plan,
                           const config::ModelConfig& config)
    : words_(add_child(std::make_unique<VocabEmbedding>(context, plan, kWordEmbeddings))),
      multiplier_(rounded(config.embedding_multiplier.value_or(1.0), context.policy().compute)),
      mup_multiplier_(config.use_mup ? config.mup_embedding_mult : 1.0),
      residual_(residual_dtype(config, context.policy())) {
  if (config::position_kind(config) == config::PositionKind::kLearnedAbsolute) {
    positions_ = &add_child(
        std::make_unique<PositionEmbedding>(context, plan, "embedding.position_embeddings"));
  }
  dropout_ = &add_child(std::make_unique<ResidualDropout>(context, config.hidden_dropout,
                                                          "embedding.hidden_dropout"));
}

Tensor GptEmbedding::forward(nn::StepContext& step) {
  Tensor hidden_th = words_.forward(step);
  if (multiplier_ != 1.0) hidden_th = hidden_th.mul(multiplier_);
  if (positions_ != nullptr) hidden_th = hidden_th.add(positions_->forward(step));
  if (mup_multiplier_ != 1.0) hidden_th = hidden_th.mul(mup_multiplier_);
  return dropout_->drop(tensor::cast(hidden_th, residual_), step);
}

GptHead::GptHead(const LeafContext& context, const nn::ParameterPlan& plan,
                 const config::ModelConfig& config, const std::string& weight_name,
                 nn::Parameter* tied_weight)
    : context_(context),
      norm_(add_child(
          std::make_unique<Norm>(context, plan, kFinalNorm, transformer::norm_form(config)))),
      logit_multiplier_(config.use_mup ? config.mup_output_mult : 1.0),
      recipe_(transformer::output_recipe(config)) {
  // A weight that the embedding owns is complete after the embedding's gradient: its head work
  // belongs to that unit.
  const double softcap = config.final_logit_softcapping.value_or(0.0);
  output_ =
      tied_weight == nullptr
          ? &add_child(std::make_unique<VocabHead>(context, plan, weight_name, softcap))
          : &add_child(std::make_unique<VocabHead>(context, *tied_weight, kEmbeddingUnit, softcap));
  output_->set_label_smoothing(config.label_smoothing);
}

Tensor GptHead::normalised(const Tensor& hidden_th, nn::StepContext& step) {
  const Tensor x_th = norm_.forward(hidden_th, step);
  step.offer(kFinalNorm, x_th);
  return logit_multiplier_ == 1.0 ? x_th : x_th.mul(logit_multiplier_);
}

Tensor GptHead::loss(const Tensor& hidden_th, nn::StepContext& step) {
  const nn::RecipeScope products(step, recipe_);
  if (step.distillation != nullptr) {
    return parallel_layers::distilled_loss(context_, *output_, normalised(hidden_th, step), step);
  }
  const bool known = step.phase == nn::Phase::kTrain && step.records() && step.ledger->has_seeds();
  return output_->loss(normalised(hidden_th, step), step,
                       known ? step.ledger->seed_of(kLoss) : Tensor());
}

Tensor GptHead::logits(const Tensor& hidden_th, nn::StepContext& step) {
  const Tensor x_th = normalised(hidden_th, step);
  return step.output == nn::StageOutput::kTeacherLogits ? output_->teacher_logits(x_th, step)
                                                        : output_->logits(x_th, step);
}

GptStage::GptStage(const config::ModelConfig& config, const LeafContext& context,
                   const config::StagePlan& stage)
    : GptStage(config, context, stage, transformer::layer_specs(config)) {}

GptStage::GptStage(const config::ModelConfig& config, const LeafContext& context,
                   const config::StagePlan& stage, const std::vector<transformer::LayerSpec>& specs)
    : config_(config),
      context_(context),
      plan_(plan_stage(config, context.layout(), stage, specs)),
      stage_(stage) {
  if (stage.embedding) {
    embedding_ = &add_child(std::make_unique<GptEmbedding>(context_, plan_, config_));
  }
  decoder_ = &add_child(std::make_unique<transformer::TransformerBlock>(
      context_, plan_, "decoder", config_, specs, stage.first_layer, stage.end_layer,
      /*first_unit=*/stage.embedding ? 1 : 0));
  if (stage.loss) {
    const bool tied = !config_.untie_embeddings_and_output_weights;
    nn::Parameter* shared = tied && embedding_ != nullptr ? &embedding_->word_weight() : nullptr;
    head_ = &add_child(std::make_unique<GptHead>(context_, plan_, config_,
                                                 tied ? kWordEmbeddings : kOutputLayer, shared));
  }
}

std::vector<nn::Unit> GptStage::units() {
  std::vector<nn::Unit> units;
  if (embedding_ != nullptr) units.push_back({"embedding", embedding_->parameters()});
  for (nn::Unit& layer : decoder_->units()) units.push_back(std::move(layer));
  if (head_ != nullptr) units.push_back({"head", head_->parameters()});
  return units;
}

Tensor GptStage::hidden_states(const nn::Bundle& input, nn::StepContext& step) {
  if (embedding_ != nullptr) {
    PENTATRON_CHECK(input.empty(), kInternal, "the first stage takes no input, {} items came",
                    input.size());
    const Tensor embedded_th = nn::run_unit(
        kEmbeddingUnit, Tensor(), step,
        [this](const Tensor&, nn::StepContext& inner) { return embedding_->forward(inner); });
    return decoder_->forward(embedded_th, step);
  }
  PENTATRON_CHECK(input.size() == 1, kInternal, "a stage takes the one item 'hidden', {} came",
                  input.size());
  const nn::BundleItemSpec expected = hidden_spec(step.batch).at(0);
  const Tensor& hidden_th = input[0].tensor;
  PENTATRON_CHECK(
      tensor::shape_of(hidden_th) == expected.shape && hidden_th.scalar_type() == expected.dtype,
      kInternal, "stage input: expected {} [{}, {}], got {}", tensor::dtype_name(expected.dtype),
      expected.shape[0], expected.shape[1], tensor::describe(hidden_th));
  return decoder_->forward(hidden_th, step);
}

nn::Bundle GptStage::forward(const nn::Bundle& input, nn::StepContext& step) {
  const Tensor hidden_th = hidden_states(input, step);
  if (head_ == nullptr) return {{"hidden", hidden_th, true}};
  const bool loss = step.output == nn::StageOutput::kLoss;
  const int position = (stage_.embedding ? 1 : 0) + stage_.num_layers();
  const Tensor output = nn::run_unit(
      position, hidden_th, step, [this, loss](const Tensor& x_th, nn::StepContext& inner) {
        return loss ? head_->loss(x_th, inner) : head_->logits(x_th, inner);
      });
  const char* name = step.distillation != nullptr ? parallel_layers::kTotalLoss : kLoss;
  return {{loss ? name : "logits", output, loss}};
}

nn::BundleSpec GptStage::hidden_spec(const Batch& batch) const {
  return {{"hidden",
           {context_.local_rows(batch.num_tokens()).size, config_.hidden_size},
           residual_dtype(config_, context_.policy()),
           true}};
}

nn::BundleSpec GptStage::input_spec(const Batch& batch) const {
  return embedding_ != nullptr ? nn::BundleSpec{} : hidden_spec(batch);
}

nn::BundleSpec GptStage::output_spec(const Batch& batch) const {
  return head_ != nullptr ? nn::BundleSpec{} : hidden_spec(batch);
}

}  // namespace pentatron::models
