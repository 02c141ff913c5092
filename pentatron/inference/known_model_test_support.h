// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <memory>
#include <string>

#include "pentatron/comm/parallel_context.h"
#include "pentatron/inference/loaded_model.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tokenizers/tokenizer.h"

// A model and a tokenizer whose numbers can be worked out by hand. Only tests include it.
namespace pentatron::inference::test_support {

constexpr std::int64_t kKnownVocabulary = 8;

// After token x at position p comes (x + 1) % 8 with probability 1 / (p + 2); the other seven
// tokens share the rest evenly. Up to position 5 that successor is the likeliest.
class SuccessorStage final : public nn::Stage {
 public:
  nn::Bundle forward(const nn::Bundle&, nn::StepContext& step) override {
    const std::int64_t rows = step.batch.num_tokens();
    Tensor logits_tv = tensor::zeros({rows, kKnownVocabulary}, step.policy.logits);
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto position = step.batch.text().positions()[row].item<double>();
      const auto next = (step.batch.tokens()[row].item<std::int64_t>() + 1) % kKnownVocabulary;
      const double probability = 1 / (position + 2);
      logits_tv[row].fill_(std::log((1 - probability) / (kKnownVocabulary - 1)));
      logits_tv[row][next].fill_(std::log(probability));
    }
    return {{"logits", logits_tv, false}};
  }
  nn::BundleSpec input_spec(const Batch&) const override { return {}; }
  nn::BundleSpec output_spec(const Batch&) const override { return {}; }
  std::vector<nn::Unit> units() override { return {}; }
};

// On this rank alone.
inline LoadedModel known_model(std::int64_t positions) {
  LoadedModel model;
  model.policy = precision_policy("fp64");
  model.config.parallel.world_size = 1;
  model.config.model.vocab_size = kKnownVocabulary;
  model.config.model.padded_vocab_size = kKnownVocabulary;
  model.config.model.max_position_embeddings = positions;
  model.config.model.seq_length = positions;
  model.backend = comm::make_single_backend();
  model.context = std::make_unique<comm::ParallelContext>(*model.backend,
                                                          comm::make_grids(model.config.parallel));
  model.stages = std::make_unique<nn::LocalStages>();
  model.stages->add(std::make_unique<SuccessorStage>());
  return model;
}

// A letter a token: a to g are 0 to 6; anything else is 7, which also ends documents.
class LetterTokenizer final : public tokenizers::Tokenizer {
 public:
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) text += "abcdefg "[id];
    return text;
  }
  std::int64_t vocab_size() const override { return kKnownVocabulary; }
  std::int32_t eod() const override { return 7; }
  std::int32_t pad() const override { return -1; }
  tokenizers::TokenizerDescription description() const override { return {}; }
  std::string identity_hash() const override { return "letters"; }

 protected:
  void do_encode(std::string_view text, std::vector<std::int32_t>& ids,
                 tokenizers::SpecialTokens) const override {
    for (const char c : text) ids.push_back(c >= 'a' && c <= 'g' ? c - 'a' : 7);
  }
};

}  // namespace pentatron::inference::test_support
