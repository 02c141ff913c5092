// SPDX-License-Identifier: Apache-2.0
// Megatron-LM's validation rules that speak of what is built here, a row each: the message names
// both values and the option to change, and comes before anything is allocated. Rules of mixture of
// experts and extra prediction heads come with these; a process's
// CUDA_DEVICE_MAX_CONNECTIONS is not asked for, since no kernel here depends on the order that it
// gives.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/config/option_table.h"
#include "pentatron/config/parser.h"
#include "pentatron/config/validate.h"

namespace pentatron::config {
namespace {

struct Rule {
  const char* name;
  const char* words;               // beside a run that is fine
  std::vector<const char*> holds;  // parts of the message; none: accepted
};

constexpr const char* kFine =
    "--num-layers 4 --hidden-size 64 --num-attention-heads 8 --seq-length 32 "
    "--max-position-embeddings 64 --micro-batch-size 1 --mock-data --tokenizer-type NullTokenizer "
    "--vocab-size 100 --lr 0.1 --distributed-backend threads";

std::string refusal(const std::string& words) {
  ParseRequest request;
  const std::string all = std::string(kFine) + " " + words;
  for (const std::string_view word : split_words(all, ' ')) request.words.emplace_back(word);
  try {
    // What a run does before it makes its ranks: the tokenizer of --vocab-size 100 has an end
    // token.
    ParsedOptions parsed = load_options(request);
    resolve_vocab(parsed.config, 101);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return {};
}

class ValidationRules : public ::testing::TestWithParam<Rule> {};

TEST_P(ValidationRules, RefusesWithBothValues) {
  const Rule& rule = GetParam();
  const std::string message = refusal(rule.words);
  if (rule.holds.empty()) {
    EXPECT_EQ(message, "");
    return;
  }
  for (const char* part : rule.holds) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
}

std::vector<Rule> rules_of_ranks() {
  return {
      {"Fine", "--train-iters 4", {}},
      // 1
      {"WorldByModel",
       "--train-iters 4 --world-size 6 --tensor-model-parallel-size 4",
       {"6 ranks", "--tensor-model-parallel-size 4"}},
      {"WorldByContext",
       "--train-iters 4 --world-size 6 --context-parallel-size 4",
       {"6 ranks", "--context-parallel-size 4", "--world-size"}},
      {"WorldByAll",
       "--train-iters 4 --world-size 8 --tensor-model-parallel-size 2 "
       "--pipeline-model-parallel-size 2 --context-parallel-size 4",
       {"8 ranks",
        "--tensor-model-parallel-size 2 x --pipeline-model-parallel-size 2 x "
        "--context-parallel-size 4"}},
      {"RankOfTheWorld",
       "--train-iters 4 --world-size 2 --rank 2 --distributed-backend fake",
       {"--rank 2", "--world-size 2"}},
      {"InstancesByRanks",
       "--train-iters 4 --world-size 4 --use-distributed-optimizer "
       "--num-distributed-optimizer-instances 3",
       {"--num-distributed-optimizer-instances 3", "4 data-parallel ranks", "--world-size"}},
      {"InstancesBesideContext",
       "--train-iters 4 --world-size 4 --context-parallel-size 2 --use-distributed-optimizer "
       "--num-distributed-optimizer-instances 4",
       {"--num-distributed-optimizer-instances 4", "2 data-parallel ranks"}},
      {"Instances",
       "--train-iters 4 --world-size 4 --use-distributed-optimizer "
       "--num-distributed-optimizer-instances 2",
       {}},
      {"TwoSizesOfBuckets",
       "--train-iters 4 --world-size 2 --ddp-bucket-size 1000 --ddp-num-buckets 4",
       {"--ddp-bucket-size 1000", "--ddp-num-buckets 4", "drop one"}},
      {"Buckets", "--train-iters 4 --world-size 2 --overlap-grad-reduce --ddp-num-buckets 4", {}},
      // 2
      {"GlobalBatch",
       "--train-iters 4 --world-size 2 --micro-batch-size 2 --global-batch-size 6",
       {"--global-batch-size 6", "--micro-batch-size 2", "data-parallel size 2"}},
      {"EvaluationBatch",
       "--train-iters 4 --eval-global-batch-size 3 --eval-micro-batch-size 2",
       {"--eval-global-batch-size 3", "--eval-micro-batch-size 2"}},
  };
}

std::vector<Rule> rules_of_widths() {
  return {
      // 3
      {"Heads",
       "--train-iters 4 --num-attention-heads 6 --hidden-size 66 --world-size 4 "
       "--tensor-model-parallel-size 4",
       {"--num-attention-heads 6", "--tensor-model-parallel-size 4"}},
      {"QueryGroups",
       "--train-iters 4 --num-attention-heads 24 --hidden-size 192 --group-query-attention "
       "--num-query-groups 6 --world-size 4 --tensor-model-parallel-size 4",
       {"--num-query-groups 6", "--tensor-model-parallel-size 4"}},
      {"QueryGroupsThatDivide",
       "--train-iters 4 --group-query-attention --num-query-groups 2 --world-size 4 "
       "--tensor-model-parallel-size 4",
       {}},
      {"HeadsByQueryGroups",
       "--train-iters 4 --group-query-attention --num-query-groups 3",
       {"--num-attention-heads 8", "--num-query-groups 3"}},
      {"FeedForward",
       "--train-iters 4 --ffn-hidden-size 130 --world-size 4 --tensor-model-parallel-size 4",
       {"--ffn-hidden-size 130", "--tensor-model-parallel-size 4"}},
      {"Vocabulary",
       "--train-iters 4 --world-size 2 --tensor-model-parallel-size 2 --padded-vocab-size 103",
       {"--padded-vocab-size 103", "--tensor-model-parallel-size 2"}},
      {"VocabularyTooSmall",
       "--train-iters 4 --padded-vocab-size 90",
       {"--padded-vocab-size 90", "101"}},
      {"RowsOfSequenceParallel",
       "--train-iters 4 --world-size 4 --tensor-model-parallel-size 4 --sequence-parallel "
       "--seq-length 30",
       {"--sequence-parallel", "--seq-length 30", "--tensor-model-parallel-size 4"}},
      {"HiddenByHeads",
       "--train-iters 4 --hidden-size 60",
       {"--hidden-size 60", "--num-attention-heads 8", "--kv-channels"}},
  };
}

std::vector<Rule> rules_of_stages() {
  return {
      // 4
      {"LayersByStages",
       "--train-iters 4 --world-size 3 --pipeline-model-parallel-size 3",
       {"--num-layers 4", "--pipeline-model-parallel-size 3"}},
      {"LayersWithEmbedding",
       "--train-iters 4 --world-size 2 --pipeline-model-parallel-size 2 "
       "--account-for-embedding-in-pipeline-split",
       {"--num-layers 4", "--pipeline-model-parallel-size 2"}},
      {"LayersWithLoss",
       "--train-iters 4 --world-size 2 --pipeline-model-parallel-size 2 "
       "--account-for-loss-in-pipeline-split",
       {"--num-layers 4", "--pipeline-model-parallel-size 2"}},
      {"LastStage",
       "--train-iters 4 --world-size 2 --pipeline-model-parallel-size 2 "
       "--decoder-last-pipeline-num-layers 0",
       {"--decoder-last-pipeline-num-layers '0'", "at least 1"}},
      {"LayersByVirtualStages",
       "--train-iters 4 --world-size 2 --pipeline-model-parallel-size 2 --num-layers 6 "
       "--num-layers-per-virtual-pipeline-stage 2 --global-batch-size 4",
       {"3 layers", "--num-layers-per-virtual-pipeline-stage 2"}},
      {"FirstStage",
       "--train-iters 4 --world-size 2 --pipeline-model-parallel-size 2 "
       "--decoder-first-pipeline-num-layers 0",
       {"--decoder-first-pipeline-num-layers '0'", "at least 1"}},
      {"FirstStageByVirtualStages",
       "--train-iters 4 --world-size 2 --pipeline-model-parallel-size 2 --num-layers 8 "
       "--decoder-first-pipeline-num-layers 3 --num-virtual-stages-per-pipeline-rank 2 "
       "--global-batch-size 4",
       {"3 layers", "(--num-virtual-stages-per-pipeline-rank) 2"}},
      {"MiddleStages",
       "--train-iters 4 --world-size 4 --pipeline-model-parallel-size 4 --num-layers 8 "
       "--decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 2",
       {"--num-layers 8", "--decoder-first-pipeline-num-layers 3",
        "--decoder-last-pipeline-num-layers 2", "--pipeline-model-parallel-size 4"}},
      {"TwoWaysOfUnevenStages",
       "--train-iters 4 --world-size 2 --pipeline-model-parallel-size 2 "
       "--decoder-first-pipeline-num-layers 1 --account-for-loss-in-pipeline-split",
       {"--decoder-first-pipeline-num-layers 1", "--account-for-loss-in-pipeline-split",
        "use one"}},
      {"MiddleByVirtualStages",
       "--train-iters 4 --world-size 4 --pipeline-model-parallel-size 4 --num-layers 12 "
       "--decoder-first-pipeline-num-layers 2 --decoder-last-pipeline-num-layers 4 "
       "--num-virtual-stages-per-pipeline-rank 2 --global-batch-size 4",
       {"3 layers", "(--num-virtual-stages-per-pipeline-rank) 2"}},
      {"EndsWithoutPipeline",
       "--train-iters 4 --decoder-first-pipeline-num-layers 1",
       {"--decoder-first-pipeline-num-layers 1", "--pipeline-model-parallel-size above 1, not 1"}},
  };
}

std::vector<Rule> rules_of_pipeline_layouts() {
  return {
      {"LayoutAlone",
       "--train-iters 4 --world-size 2 --pipeline-model-parallel-size 2 "
       "--pipeline-model-parallel-layout Ett|ttL --decoder-last-pipeline-num-layers 2",
       {"--pipeline-model-parallel-layout 'Ett|ttL'", "drop --decoder-last-pipeline-num-layers 2"}},
      {"LayoutBesideVirtualStages",
       "--train-iters 4 --world-size 2 --pipeline-model-parallel-size 2 --global-batch-size 4 "
       "--pipeline-model-parallel-layout Et|t|t|tL --num-virtual-stages-per-pipeline-rank 2",
       {"--pipeline-model-parallel-layout 'Et|t|t|tL'", "--num-virtual-stages-per-pipeline-rank 2",
        "give one"}},
      {"LayoutWithoutEmbedding",
       "--train-iters 4 --world-size 2 --pipeline-model-parallel-size 2 "
       "--pipeline-model-parallel-layout tt|ttL",
       {"--pipeline-model-parallel-layout", "must begin with the one E"}},
      {"LayoutWithoutLoss",
       "--train-iters 4 --world-size 2 --pipeline-model-parallel-size 2 "
       "--pipeline-model-parallel-layout Ett|tt",
       {"--pipeline-model-parallel-layout", "must end with the one L"}},
      {"OneWayOfVirtualStages",
       "--train-iters 4 --world-size 2 --pipeline-model-parallel-size 2 --global-batch-size 4 "
       "--num-layers-per-virtual-pipeline-stage 1 --num-virtual-stages-per-pipeline-rank 2",
       {"--num-layers-per-virtual-pipeline-stage 1", "--num-virtual-stages-per-pipeline-rank 2",
        "give one"}},
      {"LayersOfTheLayout",
       "--train-iters 4 --world-size 2 --pipeline-model-parallel-size 2 "
       "--pipeline-model-parallel-layout Ett|tL",
       {"3 decoder layers", "--num-layers is 4"}},
      {"StagesOfTheLayout",
       "--train-iters 4 --world-size 2 --pipeline-model-parallel-size 2 "
       "--pipeline-model-parallel-layout Ett|t|tL",
       {"stages, 3,", "--pipeline-model-parallel-size 2"}},
  };
}

std::vector<Rule> rules_of_lengths() {
  return {
      // 5
      {"SequenceByContext",
       "--train-iters 4 --world-size 4 --context-parallel-size 4 --seq-length 20",
       {"--seq-length 20", "--context-parallel-size 4"}},
      {"TypesOfContext",
       "--train-iters 4 --world-size 2 --context-parallel-size 2 --cp-comm-type p2p a2a",
       {"--cp-comm-type has 2 words", "--num-layers 4"}},
      {"HeadsByContext",
       "--train-iters 4 --world-size 8 --context-parallel-size 4 --tensor-model-parallel-size 2 "
       "--group-query-attention --num-query-groups 4 --cp-comm-type a2a",
       {"--num-query-groups 4", "--tensor-model-parallel-size 2", "4 context-parallel ranks"}},
      {"HierarchyByContext",
       "--train-iters 4 --world-size 4 --context-parallel-size 4 --cp-comm-type a2a+p2p "
       "--hierarchical-context-parallel-sizes 2 4",
       {"--hierarchical-context-parallel-sizes 2 4", "--context-parallel-size 4"}},
      {"HierarchyMissing",
       "--train-iters 4 --world-size 4 --context-parallel-size 4 --cp-comm-type a2a+p2p",
       {"--cp-comm-type a2a+p2p", "--hierarchical-context-parallel-sizes",
        "--context-parallel-size 4"}},
      {"Positions",
       "--train-iters 4 --seq-length 65",
       {"--seq-length 65", "--max-position-embeddings 64"}},
      {"GroupBelowStages",
       "--train-iters 4 --world-size 2 --pipeline-model-parallel-size 2 --global-batch-size 4 "
       "--num-virtual-stages-per-pipeline-rank 2 "
       "--microbatch-group-size-per-virtual-pipeline-stage 1",
       {"--microbatch-group-size-per-virtual-pipeline-stage 1",
        "--pipeline-model-parallel-size 2"}},
      {"RestOfTheGroup",
       "--train-iters 4 --world-size 2 --pipeline-model-parallel-size 2 --global-batch-size 3 "
       "--num-virtual-stages-per-pipeline-rank 2",
       {"3 micro-batches", "--pipeline-model-parallel-size 2", "change --global-batch-size"}},
  };
}

std::vector<Rule> rules_of_steps() {
  return {
      // 6
      {"IterationsAndSamples",
       "--train-iters 4 --train-samples 8",
       {"--train-iters 4", "--train-samples 8"}},
      {"SamplesWithIterationWarmup",
       "--train-samples 8 --lr-warmup-iters 2",
       {"--lr-warmup-iters 2", "--train-samples 8", "use --lr-warmup-samples"}},
      {"IterationsWithSampleDecay",
       "--train-iters 4 --lr-decay-samples 8",
       {"--lr-decay-samples 8", "--train-iters 4", "use --lr-decay-iters"}},
      {"TwoWarmups",
       "--train-iters 4 --lr-warmup-fraction 0.1 --lr-warmup-iters 2",
       {"--lr-warmup-fraction 0.1", "--lr-warmup-iters 2", "give one"}},
      {"TwoWarmupsInSamples",
       "--train-samples 8 --lr-warmup-fraction 0.1 --lr-warmup-samples 3",
       {"--lr-warmup-fraction 0.1", "--lr-warmup-samples 3", "give one"}},
      {"WarmupBeyondDecayInSamples",
       "--train-samples 8 --lr-warmup-samples 9",
       {"--lr-warmup-samples 9", "decay of 8", "--lr-decay-samples"}},
      {"LowestRate", "--train-iters 4 --min-lr 1", {"--min-lr 1", "--lr 0.1"}},
      {"WarmupBeyondDecay",
       "--train-iters 4 --lr-warmup-iters 5",
       {"--lr-warmup-iters 5", "decay of 4"}},
      // 7
      {"GatherOfNothing",
       "--train-iters 4 --world-size 2 --overlap-param-gather",
       {"--overlap-param-gather", "--use-distributed-optimizer"}},
      {"GatherOfNothingWithFsdp",
       "--train-iters 4 --world-size 2 --overlap-param-gather --use-megatron-fsdp "
       "--data-parallel-sharding-strategy no_shard",
       {"--overlap-param-gather", "--data-parallel-sharding-strategy no_shard"}},
      {"GatherOfNothingDespiteTheOptimizer",
       "--train-iters 4 --world-size 2 --overlap-param-gather --use-distributed-optimizer "
       "--use-megatron-fsdp --data-parallel-sharding-strategy no_shard",
       {"--overlap-param-gather", "--data-parallel-sharding-strategy no_shard"}},
      {"GatherBesideTheOptimizer",
       "--train-iters 4 --world-size 2 --overlap-param-gather --use-distributed-optimizer "
       "--overlap-param-gather-with-optimizer-step",
       {}},
      {"GatherOfShards",
       "--train-iters 4 --world-size 2 --overlap-param-gather --overlap-grad-reduce "
       "--use-distributed-optimizer",
       {}},
  };
}

std::vector<Rule> rules_of_files_and_recomputation() {
  return {
      // 9
      {"TwoPrecisions", "--train-iters 4 --fp16 --bf16", {"--bf16", "--fp16", "exclude"}},
      {"GradientsOfTwoWidths",
       "--train-iters 4 --world-size 2 --bf16 --use-megatron-fsdp --grad-reduce-in-bf16 "
       "--megatron-fsdp-grad-comm-dtype fp32",
       {"--megatron-fsdp-grad-comm-dtype fp32", "--grad-reduce-in-bf16"}},
      {"SaveWithoutInterval", "--train-iters 4 --save x", {"--save 'x'", "needs --save-interval"}},
      {"RetainBySave",
       "--train-iters 4 --save x --save-interval 4 --save-retain-interval 6",
       {"--save-retain-interval 6", "--save-interval 4"}},
      // Memory is reported by itself here, so no log line has to fall on it.
      {"MemoryBesideLog", "--train-iters 4 --log-interval 4 --log-memory-interval 6", {}},
      // 10; without --split the parts are those of config_test Resolve.DefaultSplit
      {"TwoSources", "--train-iters 4 --data-path a", {"--mock-data", "--data-path"}},
      {"TwoSourcesByPart",
       "--train-iters 4 --train-data-path a",
       {"--mock-data", "--train-data-path"}},
      // 11
      {"FullWithoutMethod",
       "--train-iters 4 --recompute-granularity full --recompute-num-layers 1",
       {"--recompute-granularity full", "--recompute-method"}},
      {"FullWithoutLayers",
       "--train-iters 4 --recompute-granularity full --recompute-method uniform",
       {"--recompute-granularity full", "--recompute-num-layers", "not 0"}},
      {"SelectiveWithMethod",
       "--train-iters 4 --recompute-granularity selective --recompute-method block",
       {"selective", "--recompute-method 'block'"}},
      {"SelectiveWithLayers",
       "--train-iters 4 --recompute-granularity selective --recompute-num-layers 2",
       {"selective", "--recompute-num-layers 2"}},
      {"SlicesOnOneRank",
       "--train-iters 4 --recompute-granularity full --recompute-method uniform "
       "--recompute-num-layers 1 --distribute-saved-activations",
       {"--distribute-saved-activations", "--tensor-model-parallel-size 1"}},
      {"SlicesWithSequenceParallel",
       "--train-iters 4 --world-size 2 --tensor-model-parallel-size 2 --sequence-parallel "
       "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
       "--distribute-saved-activations",
       {"--distribute-saved-activations", "--sequence-parallel", "--tensor-model-parallel-size 2"}},
      {"SlicesWithoutFull",
       "--train-iters 4 --world-size 2 --tensor-model-parallel-size 2 "
       "--recompute-granularity selective --distribute-saved-activations",
       {"--distribute-saved-activations", "full", "'selective'"}},
      {"Slices",
       "--train-iters 4 --world-size 2 --tensor-model-parallel-size 2 "
       "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
       "--distribute-saved-activations",
       {}},
  };
}

std::vector<Rule> rules_of_latent_attention() {
  return {
      // 13
      {"Latent", "--train-iters 4 --multi-latent-attention --qk-layernorm", {}},
      {"LatentWithAnyWidth",  // heads have sizes of their own
       "--train-iters 4 --multi-latent-attention --hidden-size 60 --ffn-hidden-size 64",
       {}},
      {"LatentWithQueryGroups",
       "--train-iters 4 --multi-latent-attention --group-query-attention --num-query-groups 2",
       {"--multi-latent-attention", "--num-query-groups 2", "--num-attention-heads 8", "drop one"}},
      {"LatentWithHeterogeneousLayers",
       "--train-iters 4 --multi-latent-attention --heterogeneous-layers-config-encoded-json "
       R"({"block_configs":[{},{},{},{}]})",
       {"--multi-latent-attention", "--heterogeneous-layers-config-path", "drop one"}},
      {"LatentByOtherAngles",
       "--train-iters 4 --multi-latent-attention --position-embedding-type yarn",
       {"--rope-type", "--position-embedding-type yarn", "take rope or none"}},
      {"LatentInterleaved",
       "--train-iters 4 --multi-latent-attention --rotary-interleaved",
       {"--multi-latent-attention", "drop --rotary-interleaved"}},
      {"LatentWithOddRotation",
       "--train-iters 4 --multi-latent-attention --qk-pos-emb-head-dim 7",
       {"--qk-pos-emb-head-dim 7", "rotates 7 channels"}},
      {"LatentWithL2Norm",
       "--train-iters 4 --multi-latent-attention --qk-l2-norm",
       {"--multi-latent-attention", "--qk-l2-norm", "drop one"}},
      {"LatentWithNormOfAllHeads",
       "--train-iters 4 --multi-latent-attention --qk-layernorm --normalization RMSNorm "
       "--qk-norm-scope all-heads",
       {"--multi-latent-attention", "--qk-norm-scope all-heads", "drop one"}},
      {"LatentWithGate",
       "--train-iters 4 --multi-latent-attention --attention-output-gate",
       {"--multi-latent-attention", "--attention-output-gate", "drop one"}},
      {"LatentWithQkvBias",
       "--train-iters 4 --multi-latent-attention --disable-bias-linear --add-qkv-bias",
       {"--multi-latent-attention", "--add-qkv-bias", "drop one"}},
      {"LatentWithClip",
       "--train-iters 4 --multi-latent-attention --qk-clip",
       {"--multi-latent-attention", "--qk-clip", "drop one"}},
      {"LatentWithMup",
       "--train-iters 4 --multi-latent-attention --use-mup",
       {"--multi-latent-attention", "--use-mup", "drop one"}},
      {"LatentWithAdapters",
       "--train-iters 4 --multi-latent-attention --lora-rank 3",
       {"--multi-latent-attention", "--lora-rank 3", "drop one"}},
      {"LatentInFp8",
       "--train-iters 4 --multi-latent-attention --bf16 --fp8-format hybrid",
       {"--multi-latent-attention", "--fp8-format hybrid", "drop one"}},
      {"LatentWithoutScores",
       "--train-iters 4 --multi-latent-attention --rotary-scaling-factor 1e300 --mscale-all-dim "
       "1e300",
       {"--mscale-all-dim 1e+300", "--rotary-scaling-factor 1e+300"}},
      {"YarnOfOthers",
       "--train-iters 4 --rope-type yarn",
       {"--rope-type yarn", "--multi-latent-attention", "instead of learned_absolute"}},
      {"RopeOfOthers", "--train-iters 4 --rope-type rope", {}},
  };
}

std::vector<Rule> rules() {
  std::vector<Rule> all;
  for (const auto& part : {rules_of_ranks(), rules_of_widths(), rules_of_stages(),
                           rules_of_pipeline_layouts(), rules_of_lengths(), rules_of_steps(),
                           rules_of_files_and_recomputation(), rules_of_latent_attention()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Megatron, ValidationRules, ::testing::ValuesIn(rules()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace pentatron::config
