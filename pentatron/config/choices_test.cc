// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/choices.h"

#include <gtest/gtest.h>

#include <set>

#include "pentatron/base/test_support.h"
#include "pentatron/config/option_index.h"

namespace pentatron::config {
namespace {

// Every word that an option's row accepts is a kind of its own.
template <typename Config, typename Kind>
void expect_all_choices(const char* dest, std::string Config::*field, Kind (*kind)(const Config&)) {
  const OptionIndex index;
  const OptionSpec* row = index.find_dest(dest);
  ASSERT_NE(row, nullptr);
  const std::string_view words = row->supported.empty() ? row->choices : row->supported;
  std::set<Kind> kinds;
  std::size_t count = 0;
  for (const std::string_view word : split_words(words, '|')) {
    Config config;
    config.*field = word;
    kinds.insert(kind(config));
    ++count;
  }
  EXPECT_EQ(kinds.size(), count) << dest;
  EXPECT_GT(count, 1U);
}

// With --use-megatron-fsdp its strategy alone says what is sharded.
TEST(Choices, WhatIsSharded) {
  for (const bool optimizer : {false, true}) {
    for (const bool fsdp : {false, true}) {
      for (const char* strategy : {"no_shard", "optim", "optim_grads", "optim_grads_params"}) {
        ParallelConfig parallel;
        parallel.use_distributed_optimizer = optimizer;
        parallel.use_megatron_fsdp = fsdp;
        parallel.data_parallel_sharding_strategy = strategy;
        EXPECT_EQ(shards_over_data(parallel),
                  fsdp ? std::string_view(strategy) != "no_shard" : optimizer)
            << optimizer << fsdp << strategy;
      }
    }
  }
}

TEST(Choices, RowsAndKindsAreTheSame) {
  expect_all_choices("position_embedding_type", &ModelConfig::position_embedding_type,
                     position_kind);
  expect_all_choices("normalization", &ModelConfig::normalization, norm_kind);
  expect_all_choices("qk_norm_scope", &ModelConfig::qk_norm_scope, qk_norm_scope);
  expect_all_choices("norm_placement", &ModelConfig::norm_placement, norm_placement);
  expect_all_choices("parallel_attention", &ModelConfig::parallel_attention, parallel_attention);
  expect_all_choices("softmax_type", &ModelConfig::softmax_type, softmax_kind);
  expect_all_choices("fp8_recipe", &ModelConfig::fp8_recipe, fp8_scaling);
  expect_all_choices("recompute_granularity", &ModelConfig::recompute_granularity, recompute);
  expect_all_choices("recompute_method", &ModelConfig::recompute_method, recompute_method);
  expect_all_choices("tokenizer_type", &DataConfig::tokenizer_type, tokenizer_kind);
  expect_all_choices("loss_mean", &TrainingConfig::loss_mean, loss_mean);
  expect_all_choices("cuda_graph_impl", &TrainingConfig::cuda_graph_impl, recording);
  expect_all_choices("optimizer", &OptimizerConfig::optimizer, optimizer_kind);
  expect_all_choices("lr_decay_style", &OptimizerConfig::lr_decay_style, decay_style);
  expect_all_choices("lr_wsd_decay_style", &OptimizerConfig::lr_wsd_decay_style, wsd_style);
}

TEST(Choices, OthersAreRefused) {
  ModelConfig model;
  model.position_embedding_type = "sinusoidal";
  expect_error(ErrorKind::kConfig,
               "--position-embedding-type is 'sinusoidal', expected learned_absolute, rope, yarn, "
               "longrope, mrope, alibi, relative or none",
               [&] { (void)position_kind(model); });
  EXPECT_TRUE(rotates(PositionKind::kMrope));
  EXPECT_FALSE(rotates(PositionKind::kAlibi));
  EXPECT_TRUE(updates_matrices(OptimizerKind::kSoap));
  EXPECT_FALSE(updates_matrices(OptimizerKind::kLion));
}

}  // namespace
}  // namespace pentatron::config
