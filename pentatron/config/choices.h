// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/config/config.h"

// Options with closed choices as enumerations, for what is told apart at several places. The
// configuration keeps the option's own words, which files, checkpoints and messages are made of; a
// word that is no choice: kConfig, naming option and choices.
namespace pentatron::config {

enum class PositionKind {
  kNone,
  kLearnedAbsolute,
  kRope,
  kYarn,
  kLongRope,
  kMrope,
  kAlibi,
  kRelative
};
[[nodiscard]] PositionKind position_kind(const ModelConfig& model);
// Whether queries and keys are rotated.
[[nodiscard]] constexpr bool rotates(PositionKind kind) {
  return kind == PositionKind::kRope || kind == PositionKind::kYarn ||
         kind == PositionKind::kLongRope || kind == PositionKind::kMrope;
}

// Whether anything is dealt over the data-parallel ranks. With --use-megatron-fsdp its strategy
// alone says so, as Megatron has it.
[[nodiscard]] bool shards_over_data(const ParallelConfig& parallel);

// --normalization.
enum class NormKind { kLayerNorm, kRmsNorm };
[[nodiscard]] NormKind norm_kind(const ModelConfig& model);
// --qk-norm-scope: one norm for each head, or one over all heads.
enum class QkNormScope { kHead, kAllHeads };
[[nodiscard]] QkNormScope qk_norm_scope(const ModelConfig& model);
// --norm-placement: what of attention and mlp is normed.
enum class NormPlacement { kInputs, kOutputs, kBoth };
[[nodiscard]] NormPlacement norm_placement(const ModelConfig& model);
// --parallel-attention: the mlp reads what attention reads, through the same norm or its own.
enum class ParallelAttention { kNone, kSharedNorm, kOwnNorms };
[[nodiscard]] ParallelAttention parallel_attention(const ModelConfig& model);
// --softmax-type: what the softmax has in its denominator beside the scores.
enum class SoftmaxKind { kVanilla, kOffByOne, kLearnable };
[[nodiscard]] SoftmaxKind softmax_kind(const ModelConfig& model);
// --recompute-granularity: what backward computes again.
enum class Recompute { kNone, kModules, kLayers };
[[nodiscard]] Recompute recompute(const ModelConfig& model);
// --recompute-method; none: not given.
enum class RecomputeMethod { kNone, kUniform, kBlock };
[[nodiscard]] RecomputeMethod recompute_method(const ModelConfig& model);
// --fp8-recipe.
enum class Fp8Scaling { kTensorwise, kDelayed, kBlockwise };
[[nodiscard]] Fp8Scaling fp8_scaling(const ModelConfig& model);

enum class OptimizerKind { kAdam, kSgd, kLion, kMuon, kSoap };
[[nodiscard]] OptimizerKind optimizer_kind(const OptimizerConfig& optimizer);
// Whether matrices have a rule of their own, which needs each whole on one rank.
[[nodiscard]] constexpr bool updates_matrices(OptimizerKind kind) {
  return kind == OptimizerKind::kMuon || kind == OptimizerKind::kSoap;
}

enum class DecayStyle { kConstant, kLinear, kCosine, kInverseSquareRoot, kWsd };
[[nodiscard]] DecayStyle decay_style(const OptimizerConfig& optimizer);
// Of the last part of a WSD schedule.
enum class WsdStyle { kExponential, kLinear, kCosine, kMinusSqrt };
[[nodiscard]] WsdStyle wsd_style(const OptimizerConfig& optimizer);

// --bf16, --fp16, --fp64 or none of them.
enum class Precision { kFp32, kBf16, kFp16, kFp64 };
[[nodiscard]] Precision precision(const TrainingConfig& training);
// Whether activations have 16 bits.
[[nodiscard]] constexpr bool is_narrow(Precision precision) {
  return precision == Precision::kBf16 || precision == Precision::kFp16;
}
// --loss-mean.
enum class LossMean { kTokens, kMicroBatches };
[[nodiscard]] LossMean loss_mean(const TrainingConfig& training);
// --cuda-graph-impl: what is recorded.
enum class Recording { kNone, kLocal, kTransformerEngine, kFullIteration };
[[nodiscard]] Recording recording(const TrainingConfig& training);

// --tokenizer-type; none: not given.
enum class TokenizerKind {
  kNone,
  kBertLowerCase,
  kBertCased,
  kGpt2Bpe,
  kSentencePiece,
  kGptSentencePiece,
  kLlama2,
  kHuggingFace,
  kTik,
  kNull,
  kSft
};
[[nodiscard]] TokenizerKind tokenizer_kind(const DataConfig& data);
// Whether its file is a SentencePiece model.
[[nodiscard]] constexpr bool reads_sentence_piece(TokenizerKind kind) {
  return kind == TokenizerKind::kSentencePiece || kind == TokenizerKind::kGptSentencePiece ||
         kind == TokenizerKind::kLlama2;
}

}  // namespace pentatron::config
