// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/choices.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "pentatron/base/error.h"

namespace pentatron::config {
namespace {

template <typename Kind>
struct Choice {
  std::string_view word;
  Kind kind;
};

template <typename Kind, std::size_t N>
Kind chosen(const char* option, std::string_view word, const Choice<Kind> (&choices)[N]) {
  std::string expected;
  for (std::size_t i = 0; i < N; ++i) {
    if (choices[i].word == word) return choices[i].kind;
    expected += fmt::format("{}{}", i == 0 ? "" : i + 1 == N ? " or " : ", ", choices[i].word);
  }
  PENTATRON_THROW(kConfig, "{} is '{}', expected {}", option, word, expected);
}

}  // namespace

PositionKind position_kind(const ModelConfig& model) {
  static constexpr Choice<PositionKind> kChoices[] = {
      {"learned_absolute", PositionKind::kLearnedAbsolute},
      {"rope", PositionKind::kRope},
      {"yarn", PositionKind::kYarn},
      {"longrope", PositionKind::kLongRope},
      {"mrope", PositionKind::kMrope},
      {"alibi", PositionKind::kAlibi},
      {"relative", PositionKind::kRelative},
      {"none", PositionKind::kNone}};
  return chosen("--position-embedding-type", model.position_embedding_type, kChoices);
}

bool shards_over_data(const ParallelConfig& parallel) {
  return parallel.use_megatron_fsdp ? parallel.data_parallel_sharding_strategy != "no_shard"
                                    : parallel.use_distributed_optimizer;
}

NormKind norm_kind(const ModelConfig& model) {
  static constexpr Choice<NormKind> kChoices[] = {{"LayerNorm", NormKind::kLayerNorm},
                                                  {"RMSNorm", NormKind::kRmsNorm}};
  return chosen("--normalization", model.normalization, kChoices);
}

QkNormScope qk_norm_scope(const ModelConfig& model) {
  static constexpr Choice<QkNormScope> kChoices[] = {{"head", QkNormScope::kHead},
                                                     {"all-heads", QkNormScope::kAllHeads}};
  return chosen("--qk-norm-scope", model.qk_norm_scope, kChoices);
}

NormPlacement norm_placement(const ModelConfig& model) {
  static constexpr Choice<NormPlacement> kChoices[] = {{"pre", NormPlacement::kInputs},
                                                       {"post", NormPlacement::kOutputs},
                                                       {"both", NormPlacement::kBoth}};
  return chosen("--norm-placement", model.norm_placement, kChoices);
}

ParallelAttention parallel_attention(const ModelConfig& model) {
  static constexpr Choice<ParallelAttention> kChoices[] = {
      {"none", ParallelAttention::kNone},
      {"shared-norm", ParallelAttention::kSharedNorm},
      {"own-norms", ParallelAttention::kOwnNorms}};
  return chosen("--parallel-attention", model.parallel_attention, kChoices);
}

SoftmaxKind softmax_kind(const ModelConfig& model) {
  static constexpr Choice<SoftmaxKind> kChoices[] = {{"vanilla", SoftmaxKind::kVanilla},
                                                     {"off-by-one", SoftmaxKind::kOffByOne},
                                                     {"learnable", SoftmaxKind::kLearnable}};
  return chosen("--softmax-type", model.softmax_type, kChoices);
}

Recompute recompute(const ModelConfig& model) {
  static constexpr Choice<Recompute> kChoices[] = {{"selective", Recompute::kModules},
                                                   {"full", Recompute::kLayers}};
  if (model.recompute_granularity.empty()) return Recompute::kNone;
  return chosen("--recompute-granularity", model.recompute_granularity, kChoices);
}

RecomputeMethod recompute_method(const ModelConfig& model) {
  static constexpr Choice<RecomputeMethod> kChoices[] = {{"uniform", RecomputeMethod::kUniform},
                                                         {"block", RecomputeMethod::kBlock}};
  if (model.recompute_method.empty()) return RecomputeMethod::kNone;
  return chosen("--recompute-method", model.recompute_method, kChoices);
}

Fp8Scaling fp8_scaling(const ModelConfig& model) {
  static constexpr Choice<Fp8Scaling> kChoices[] = {{"tensorwise", Fp8Scaling::kTensorwise},
                                                    {"delayed", Fp8Scaling::kDelayed},
                                                    {"blockwise", Fp8Scaling::kBlockwise}};
  return chosen("--fp8-recipe", model.fp8_recipe, kChoices);
}

OptimizerKind optimizer_kind(const OptimizerConfig& optimizer) {
  static constexpr Choice<OptimizerKind> kChoices[] = {{"adam", OptimizerKind::kAdam},
                                                       {"sgd", OptimizerKind::kSgd},
                                                       {"lion", OptimizerKind::kLion},
                                                       {"muon", OptimizerKind::kMuon},
                                                       {"soap", OptimizerKind::kSoap}};
  return chosen("--optimizer", optimizer.optimizer, kChoices);
}

DecayStyle decay_style(const OptimizerConfig& optimizer) {
  static constexpr Choice<DecayStyle> kChoices[] = {
      {"constant", DecayStyle::kConstant},
      {"linear", DecayStyle::kLinear},
      {"cosine", DecayStyle::kCosine},
      {"inverse-square-root", DecayStyle::kInverseSquareRoot},
      {"WSD", DecayStyle::kWsd}};
  return chosen("--lr-decay-style", optimizer.lr_decay_style, kChoices);
}

WsdStyle wsd_style(const OptimizerConfig& optimizer) {
  static constexpr Choice<WsdStyle> kChoices[] = {{"exponential", WsdStyle::kExponential},
                                                  {"linear", WsdStyle::kLinear},
                                                  {"cosine", WsdStyle::kCosine},
                                                  {"minus_sqrt", WsdStyle::kMinusSqrt}};
  return chosen("--lr-wsd-decay-style", optimizer.lr_wsd_decay_style, kChoices);
}

Precision precision(const TrainingConfig& training) {
  static constexpr Choice<Precision> kChoices[] = {{"fp32", Precision::kFp32},
                                                   {"bf16", Precision::kBf16},
                                                   {"fp16", Precision::kFp16},
                                                   {"fp64", Precision::kFp64}};
  return chosen("the precision", training.precision, kChoices);
}

LossMean loss_mean(const TrainingConfig& training) {
  static constexpr Choice<LossMean> kChoices[] = {{"tokens", LossMean::kTokens},
                                                  {"micro-batches", LossMean::kMicroBatches}};
  return chosen("--loss-mean", training.loss_mean, kChoices);
}

Recording recording(const TrainingConfig& training) {
  static constexpr Choice<Recording> kChoices[] = {
      {"none", Recording::kNone},
      {"local", Recording::kLocal},
      {"transformer_engine", Recording::kTransformerEngine},
      {"full_iteration", Recording::kFullIteration}};
  return chosen("--cuda-graph-impl", training.cuda_graph_impl, kChoices);
}

TokenizerKind tokenizer_kind(const DataConfig& data) {
  static constexpr Choice<TokenizerKind> kChoices[] = {
      {"BertWordPieceLowerCase", TokenizerKind::kBertLowerCase},
      {"BertWordPieceCase", TokenizerKind::kBertCased},
      {"GPT2BPETokenizer", TokenizerKind::kGpt2Bpe},
      {"SentencePieceTokenizer", TokenizerKind::kSentencePiece},
      {"GPTSentencePieceTokenizer", TokenizerKind::kGptSentencePiece},
      {"Llama2Tokenizer", TokenizerKind::kLlama2},
      {"HuggingFaceTokenizer", TokenizerKind::kHuggingFace},
      {"TikTokenizer", TokenizerKind::kTik},
      {"NullTokenizer", TokenizerKind::kNull},
      {"SFTTokenizer", TokenizerKind::kSft}};
  if (data.tokenizer_type.empty()) return TokenizerKind::kNone;
  return chosen("--tokenizer-type", data.tokenizer_type, kChoices);
}

}  // namespace pentatron::config
