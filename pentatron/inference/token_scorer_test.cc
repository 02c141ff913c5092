// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/token_scorer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "pentatron/inference/generator.h"
#include "pentatron/inference/tiny_model_test_support.h"

namespace pentatron::inference {
namespace {

using Tokens = std::vector<std::int32_t>;
using namespace test_support;  // NOLINT: test vocabulary

// Of many lengths, in no order; 48 positions and one more token.
std::vector<Tokens> sequences() {
  std::vector<Tokens> all;
  for (const int length : {5, 1, 17, 2, 49, 0, 30, 9, 9, 3}) {
    Tokens& tokens = all.emplace_back();
    for (int i = 0; i < length; ++i) {
      tokens.push_back(static_cast<std::int32_t>((length * 31 + i * i * 7 + i) % 61));
    }
  }
  return all;
}

std::vector<SequenceScores> score(const TinyModel& model, const ScorerOptions& options,
                                  const std::vector<Tokens>& tokens) {
  TokenScorer scorer(model.run_config, model.stages, model.context, model.policy, kCpu, options);
  return scorer.score(tokens);
}

// Logits [tokens, 61] of one sequence alone, by another maker of batches; on one rank.
Tensor plain_logits(const TinyModel& model, const Tokens& tokens) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  Batch batch = pentatron::test_support::make_batch({{count}}, model.run_config.model.vocab_size);
  batch.fields["tokens"] =
      tensor::from_vector(std::vector<std::int64_t>(tokens.begin(), tokens.end()));
  const tensor::NoGrad no_grad;
  nn::StepContext step{.batch = batch,
                       .policy = model.policy,
                       .phase = nn::Phase::kEvaluate,
                       .output = nn::StageOutput::kLogits};
  return model.stages.at(0).forward({}, step).at(0).tensor.narrow(1, 0, 61);
}

TEST(TokenScorer, EqualsTheLogSoftmaxOfPlainLogits) {
  for (const config::ModelConfig& kind : {gpt2_kind(), llama_kind()}) {
    with_model("fp64", kind, {}, [](const TinyModel& model) {
      std::vector<Tokens> all = sequences();
      all[4].pop_back();  // plain_logits feeds the last token too
      // A text whose tokens are the likeliest ones.
      ModelRunner runner(model.run_config, model.stages, model.context, model.policy);
      Tokens greedy = all[0];
      const Tokens written =
          generate(runner, 61, greedy, {.sampling = {.temperature = 0}, .max_new_tokens = 9})
              .tokens;
      greedy.insert(greedy.end(), written.begin(), written.end());
      all.push_back(greedy);
      const std::vector<SequenceScores> scores = score(model, {.logits = true}, all);
      std::size_t num_likeliest = 0;
      for (std::size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(scores[i].logprobs.size() + 1, std::max<std::size_t>(1, all[i].size()));
        if (all[i].empty()) continue;
        const Tensor logits_tv = plain_logits(model, all[i]).contiguous();
        const double* logits = logits_tv.const_data_ptr<double>();
        for (std::size_t t = 0; t < all[i].size(); ++t, logits += 61) {
          double largest = logits[0];
          double sum = 0;
          for (int v = 0; v < 61; ++v) {
            largest = std::max(largest, logits[v]);
            sum += std::exp(logits[v]);
            EXPECT_NEAR(scores[i].logits.at(t * 61 + static_cast<std::size_t>(v)), logits[v], 1e-5);
          }
          if (t + 1 == all[i].size()) break;
          const double target = logits[all[i][t + 1]];
          EXPECT_NEAR(scores[i].logprobs[t], target - std::log(sum), 1e-11);
          EXPECT_EQ(scores[i].likeliest[t] != 0, target == largest);
          num_likeliest += scores[i].likeliest[t];
        }
      }
      EXPECT_GE(num_likeliest, 9U);
    });
  }
}

// What shares a forward, and on how many ranks it runs, changes nothing beyond rounding.
TEST(TokenScorer, SameInEveryBatchAndLayout) {
  const std::vector<Tokens> all = sequences();
  for (const config::ModelConfig& kind : {gpt2_kind(), llama_kind()}) {
    std::vector<SequenceScores> alone;
    with_model("fp64", kind, {}, [&](const TinyModel& model) {
      for (const Tokens& tokens : all) alone.push_back(score(model, {}, {tokens}).at(0));
    });
    for (const Layout& layout :
         {Layout{}, Layout{.tp = 2}, Layout{.pp = 2}, Layout{.tp = 2, .pp = 2},
          Layout{.tp = 2, .pp = 2, .sequence_parallel = true}}) {
      for (const std::int64_t max_rows : {1, 20, 1000}) {
        with_model("fp64", kind, layout, [&](const TinyModel& model) {
          const std::vector<SequenceScores> scores = score(model, {.max_rows = max_rows}, all);
          ASSERT_EQ(scores.size(), alone.size());
          for (std::size_t i = 0; i < all.size(); ++i) {
            ASSERT_EQ(scores[i].logprobs.size(), alone[i].logprobs.size());
            EXPECT_EQ(scores[i].likeliest, alone[i].likeliest);
            for (std::size_t t = 0; t < alone[i].logprobs.size(); ++t) {
              EXPECT_NEAR(scores[i].logprobs[t], alone[i].logprobs[t], 1e-11)
                  << "tp " << layout.tp << " pp " << layout.pp << " sp " << layout.sequence_parallel
                  << " rows " << max_rows;
            }
          }
        });
      }
    }
  }
}

TEST(TokenScorer, LogitsOfEveryLayout) {
  const std::vector<Tokens> all{{3, 1, 4, 1, 5}, {}, {9}, {2, 6}};
  std::vector<SequenceScores> alone;
  with_model("fp64", llama_kind(), {},
             [&](const TinyModel& model) { alone = score(model, {.logits = true}, all); });
  for (const Layout& layout : {Layout{.tp = 2}, Layout{.tp = 2, .pp = 2}}) {
    with_model("fp64", llama_kind(), layout, [&](const TinyModel& model) {
      const std::vector<SequenceScores> scores = score(model, {.logits = true}, all);
      for (std::size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(scores[i].logits.size(), all[i].size() * 61);
        for (std::size_t k = 0; k < scores[i].logits.size(); ++k) {
          EXPECT_NEAR(scores[i].logits[k], alone[i].logits[k], 1e-5);
        }
      }
    });
  }
}

// Of equal logits the lowest id counts, wherever it stands.
TEST(TokenScorer, TiesGoToTheLowestId) {
  for (const Layout& layout : {Layout{}, Layout{.tp = 2}}) {
    with_model("fp64", llama_kind(), layout, [&](const TinyModel& model) {
      {
        const tensor::NoGrad no_grad;
        model.stages.parameters().back()->data().fill_(0.0);  // the output layer
      }
      const std::vector<SequenceScores> scores = score(model, {}, {{5, 0, 40, 0}});
      EXPECT_EQ(scores[0].likeliest, (std::vector<std::uint8_t>{1, 0, 1}));
      for (const double logprob : scores[0].logprobs) EXPECT_NEAR(logprob, -std::log(61), 1e-12);
    });
  }
}

TEST(TokenScorer, DamagedWeightsAreAnError) {
  with_model("fp32", gpt2_kind(), {}, [](const TinyModel& model) {
    {
      const tensor::NoGrad no_grad;
      model.stages.parameters().back()->data().fill_(std::nan(""));
    }
    EXPECT_THROW((void)score(model, {}, {{1, 2}}), Error);
  });
}

}  // namespace
}  // namespace pentatron::inference
