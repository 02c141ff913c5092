// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/effects.h"

#include <gtest/gtest.h>

#include "pentatron/config/parser_test_support.h"

namespace pentatron::config {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

TEST(Effects, NamesValuesWithoutEffect) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--num-query-groups 2", "--group-query-attention"},
      {"--rotary-base 500000", "--position-embedding-type rope"},
      {"--rotary-percent 0.5", "--position-embedding-type rope"},
      {"--add-qkv-bias", "bias already"},
      {"--padded-vocab-size 256 --make-vocab-size-divisible-by 64", "--padded-vocab-size"},
      {"--sequence-parallel", "there is one"},
      {"--use-distributed-optimizer --use-megatron-fsdp --data-parallel-sharding-strategy no_shard",
       "no_shard shards nothing"},
      {"--mock-data --data-cache-path a", "--mock-data"},
      {"--mock-data --no-mmap-bin-files", "--mock-data"},
      {"--tokenizer-type NullTokenizer --vocab-file v", "GPT2BPETokenizer"},
      {"--tokenizer-type NullTokenizer --merge-file v", "GPT2BPETokenizer"},
      {"--null-tokenizer-eod-id 3", "NullTokenizer"},
      {"--lr-decay-style constant --min-lr 0.1", "--lr-decay-style"},
      {"--lr-decay-style constant --lr-decay-iters 9", "--lr-decay-style"},
      {"--lr-warmup-init 0.1", "warm-up"},
      {"--optimizer sgd --adam-beta1 0.5", "adam"},
      {"--optimizer sgd --adam-beta2 0.5", "adam"},
      {"--optimizer sgd --adam-eps 0.5", "adam"},
      {"--sgd-momentum 0.5", "sgd"},
      {"--exit-signal SIGINT", "--exit-signal-handler"},
      {"--save-interval 5", "--save"},
      {"--keep-checkpoints 5", "--save"},
      {"--no-save-optim", "--save"},
      {"--ckpt-step 5", "--load"},
      {"--finetune", "--load"},
      {"--no-load-optim", "--load"},
      {"--exit-on-missing-checkpoint", "--load"},
      {"--use-checkpoint-opt-param-scheduler", "--load"},
      {"--override-opt_param-scheduler", "--load"},
  };
  for (const auto& [words, reason] : cases) {
    const ParsedOptions parsed = parse(request(words));
    ASSERT_EQ(parsed.no_effect.size(), 1U) << words;
    EXPECT_NE(parsed.no_effect[0].reason.find(reason), std::string::npos)
        << parsed.no_effect[0].reason;
  }
}

TEST(Effects, RefusesTwoSourcesOfData) {
  for (const char* option : {"--data-path", "--train-data-path", "--valid-data-path"}) {
    EXPECT_EQ(problem_of(fmt::format("--mock-data {} a", option)),
              fmt::format("{} and --mock-data exclude each other: mock data reads no files; give "
                          "one",
                          option));
  }
}

TEST(Effects, AcceptsTheSameValuesWhereTheyCount) {
  for (const char* words :
       {"--group-query-attention --num-query-groups 2",
        "--position-embedding-type rope --rotary-base 500000 --rotary-percent 0.5",
        "--disable-bias-linear --add-qkv-bias", "--make-vocab-size-divisible-by 64",
        "--tensor-model-parallel-size 2 --sequence-parallel", "--data-path a --data-cache-path b",
        "--tokenizer-type GPT2BPETokenizer --vocab-file v --merge-file m",
        "--tokenizer-type NullTokenizer --null-tokenizer-eod-id 3", "--min-lr 0.1",
        "--lr-decay-style constant --lr-warmup-fraction 0.1 --lr-decay-iters 9",
        "--lr-warmup-iters 3 --lr-warmup-init 0.1", "--optimizer sgd --sgd-momentum 0.5",
        "--adam-beta1 0.5 --adam-beta2 0.5 --adam-eps 0.5",
        "--exit-signal-handler --exit-signal SIGINT",
        "--save a --save-interval 5 --keep-checkpoints 2 --no-save-optim",
        "--load a --ckpt-step 5 --finetune --no-load-optim --exit-on-missing-checkpoint",
        "--set sequence_parallel=false finetune=false"}) {
    EXPECT_EQ(problem_of(words), "") << words;
  }
}

}  // namespace
}  // namespace pentatron::config
