// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/document_scorer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "pentatron/base/test_support.h"
#include "pentatron/inference/known_model_test_support.h"

namespace pentatron::inference {
namespace {

using Tokens = std::vector<std::int32_t>;
using test_support::known_model;

TEST(Windows, EveryTargetCountsOnceInTheFirstWindowThatHasIt) {
  for (std::int64_t num_tokens = 0; num_tokens < 30; ++num_tokens) {
    for (std::int64_t context = 1; context < 9; ++context) {
      for (std::int64_t stride = 1; stride <= context; ++stride) {
        std::int64_t next = 1;
        std::int64_t number = 0;
        for (const ScoreWindow& window : plan_windows(num_tokens, context, stride)) {
          EXPECT_EQ(window.begin, stride * number++);
          EXPECT_LE(window.num_inputs, context);
          EXPECT_EQ(window.first_target, next);
          EXPECT_GT(window.first_target, window.begin);
          if (window.begin > 0) {
            EXPECT_GE(window.first_target - window.begin, context - stride + 1);
          }
          next = window.begin + window.num_inputs + 1;
        }
        EXPECT_EQ(next, std::max<std::int64_t>(1, num_tokens));
      }
    }
  }
}

// Positions 0, 1, 2 give a successor 1/2, 1/3, 1/4; token 0 after 6 is none: 3/4 / 7.
const Tokens kCounting{1, 2, 3, 4, 5, 6, 0};

void expect_probabilities(const SequenceScores& scores, const std::vector<double>& expected) {
  ASSERT_EQ(scores.logprobs.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(scores.logprobs[i], std::log(expected[i]), 1e-12) << "target " << i + 1;
  }
}

TEST(DocumentScorer, KnownProbabilities) {
  LoadedModel model = known_model(16);
  DocumentScorer scorer(model, {});
  const auto scores = scorer.score(std::vector<Tokens>{{1, 2, 3, 5}, {}, {7, 0}, {4}});
  ASSERT_EQ(scores.size(), 4U);
  expect_probabilities(scores[0], {1.0 / 2, 1.0 / 3, 3.0 / 4 / 7});
  EXPECT_EQ(scores[0].likeliest, (std::vector<std::uint8_t>{1, 1, 0}));
  expect_probabilities(scores[1], {});
  expect_probabilities(scores[2], {1.0 / 2});
  expect_probabilities(scores[3], {});
}

TEST(DocumentScorer, WindowsOfLongDocuments) {
  LoadedModel model = known_model(3);
  DocumentScorer apart(model, {.stride = 3});
  expect_probabilities(apart.score(std::vector<Tokens>{kCounting})[0],
                       {1.0 / 2, 1.0 / 3, 1.0 / 4, 1.0 / 2, 1.0 / 3, 3.0 / 4 / 7});
  DocumentScorer close(model, {.stride = 1});
  expect_probabilities(close.score(std::vector<Tokens>{kCounting})[0],
                       {1.0 / 2, 1.0 / 3, 1.0 / 4, 1.0 / 4, 1.0 / 4, 3.0 / 4 / 7});
  // A smaller context than the model's positions.
  DocumentScorer small(model, {.context = 2, .stride = 1});
  expect_probabilities(small.score(std::vector<Tokens>{kCounting})[0],
                       {1.0 / 2, 1.0 / 3, 1.0 / 3, 1.0 / 3, 1.0 / 3, 2.0 / 3 / 7});
}

TEST(DocumentScorer, LogitsOfEachDocument) {
  LoadedModel model = known_model(4);
  DocumentScorer scorer(model, {.logits = true});
  const auto scores = scorer.score(std::vector<Tokens>{{1, 2}, {5}});
  ASSERT_EQ(scores[0].logits.size(), 2U * 8);
  ASSERT_EQ(scores[1].logits.size(), 8U);
  EXPECT_NEAR(scores[0].logits[2], std::log(0.5), 1e-6);          // 2 after 1
  EXPECT_NEAR(scores[0].logits[8 + 3], std::log(1.0 / 3), 1e-6);  // 3 after 2
  EXPECT_NEAR(scores[1].logits[0], std::log(0.5 / 7), 1e-6);      // 0 after 5
}

TEST(DocumentScorer, WhatDoesNotFitIsRefused) {
  LoadedModel model = known_model(3);
  expect_error(ErrorKind::kConfig, "3 positions", [&] { DocumentScorer(model, {.context = 4}); });
  expect_error(ErrorKind::kConfig, "every 3 tokens",
               [&] { DocumentScorer(model, {.context = 2, .stride = 3}); });
  expect_error(ErrorKind::kConfig, "--stride",
               [&] { DocumentScorer(model, {.stride = 1, .logits = true}); });
  DocumentScorer scorer(model, {});
  EXPECT_EQ(scorer.score(std::vector<Tokens>{{1, 2, 3, 4}})[0].logprobs.size(), 3U);
  expect_error(ErrorKind::kConfig, "5 tokens is longer than the 4", [&] {
    (void)scorer.score(std::vector<Tokens>{{1, 2, 3, 4, 5}});
  });
  expect_error(ErrorKind::kData, "token 8 is outside the model's vocabulary of 8", [&] {
    (void)scorer.score(std::vector<Tokens>{{1, 8}});
  });
}

}  // namespace
}  // namespace pentatron::inference
