// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/validate_context.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "pentatron/config/validate_test_support.h"

namespace pentatron::config {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

TEST(Resolve, ContextParallel) {
  const auto sizes = [](std::int64_t cp, std::int64_t tp, std::int64_t seq_length) {
    return [=](RunConfig& c) {
      c.parallel.context_parallel_size = cp;
      c.parallel.tensor_model_parallel_size = tp;
      c.parallel.sequence_parallel = tp > 1;
      c.parallel.world_size = cp * tp;
      c.model.seq_length = seq_length;
    };
  };
  EXPECT_EQ(problem(sizes(4, 1, 32)), "");
  EXPECT_EQ(problem(sizes(4, 2, 32)), "");
  EXPECT_EQ(problem(sizes(4, 1, 20)),
            "--seq-length 20 does not divide by 2 x --context-parallel-size 4: each rank holds two "
            "equal chunks of a sample; change one of the two");
  EXPECT_EQ(problem(sizes(2, 8, 24)),
            "--sequence-parallel: --seq-length 24 / --context-parallel-size 2 does not divide by "
            "--tensor-model-parallel-size 8");
}

TEST(Resolve, ContextCommunication) {
  using Words = std::vector<std::string>;
  const auto with = [](const Words& types, const Words& sizes, std::int64_t tp = 1,
                       std::int64_t groups = 8) {
    return problem([=](RunConfig& c) {
      c.parallel.context_parallel_size = 4;
      c.parallel.tensor_model_parallel_size = tp;
      c.parallel.world_size = 4 * tp;
      c.model.seq_length = 32;
      c.model.group_query_attention = true;
      c.model.num_query_groups = groups;
      c.model.cp_comm_type = types;
      c.parallel.hierarchical_context_parallel_sizes = sizes;
    });
  };
  EXPECT_EQ(with({"p2p"}, {}), "");
  EXPECT_EQ(with({"p2p", "all_gather", "a2a", "allgather"}, {}), "");
  EXPECT_EQ(with({"a2a+p2p"}, {"2", "2"}, 2, 4), "");
  EXPECT_EQ(with({"p2p", "a2a"}, {}),
            "--cp-comm-type has 2 words for --num-layers 4: give one, or one a layer");
  EXPECT_EQ(with({"ring"}, {}),
            "--cp-comm-type 'ring': expected one of p2p, all_gather, a2a, a2a+p2p");
  EXPECT_EQ(with({"a2a"}, {}, 4, 8),
            "--cp-comm-type a2a: --num-attention-heads 8 gives each of "
            "--tensor-model-parallel-size 4 ranks 2, which 4 context-parallel ranks cannot share "
            "evenly: use --cp-comm-type p2p or all_gather, or change the sizes");
  EXPECT_NE(with({"a2a"}, {}, 1, 2).find("--num-query-groups 2 gives each of"), std::string::npos);
  EXPECT_EQ(with({"a2a+p2p"}, {}),
            "--cp-comm-type a2a+p2p needs --hierarchical-context-parallel-sizes, two numbers that "
            "multiply to --context-parallel-size 4");
  EXPECT_EQ(with({"a2a+p2p"}, {"2", "4"}),
            "--hierarchical-context-parallel-sizes 2 4 do not multiply to --context-parallel-size "
            "4: change the one or the other");
  EXPECT_NE(with({"a2a+p2p"}, {"4"}).find("has 1 numbers: expected two"), std::string::npos);
  EXPECT_NE(with({"a2a+p2p"}, {"0", "4"}).find("'0': expected a number of at least 1"),
            std::string::npos);
  EXPECT_NE(with({"a2a+p2p"}, {"2", "2"}, 1, 1).find("2 context-parallel ranks cannot share"),
            std::string::npos);
}

TEST(Resolve, DynamicContextParallel) {
  const auto with = [](auto change) {
    return problem([&](RunConfig& c) {
      c.parallel.world_size = 8;
      c.parallel.context_parallel_size = 2;
      c.parallel.dynamic_context_parallel = true;
      c.parallel.max_seqlen_per_dp_cp_rank = 8;
      c.data.sft = true;
      c.data.tokenizer_type = "SFTTokenizer";
      change(c);
    });
  };
  EXPECT_EQ(with([](RunConfig&) {}), "");
  EXPECT_EQ(with([](RunConfig& c) { c.model.seq_length = 37; }), "") << "samples are filled up";
  const std::vector<std::pair<std::function<void(RunConfig&)>, std::string>> cases = {
      {[](RunConfig& c) { c.data.sft = false; }, "it needs --sft"},
      {[](RunConfig& c) { c.parallel.pipeline_model_parallel_size = 2; },
       "--pipeline-model-parallel-size 1, not 2"},
      {[](RunConfig& c) { c.parallel.use_megatron_fsdp = true; },
       "does not go with --use-megatron-fsdp"},
      {[](RunConfig& c) { c.training.cuda_graph_impl = "full_iteration"; },
       "--cuda-graph-impl full_iteration"},
      {[](RunConfig& c) { c.model.cp_comm_type = {"a2a"}; }, "p2p or all_gather, not a2a"},
      {[](RunConfig& c) {
         c.parallel.world_size = 6;
         c.parallel.context_parallel_size = 3;
       },
       "--context-parallel-size 3 is no power of two"},
      {[](RunConfig& c) { c.parallel.world_size = c.parallel.context_parallel_size = 1; },
       "needs an even number of data x context ranks, not 1 x 1"},
      {[](RunConfig& c) { c.parallel.max_seqlen_per_dp_cp_rank = 0; },
       "needs --max-seqlen-per-dp-cp-rank"},
      {[](RunConfig& c) { c.parallel.min_dynamic_context_parallel_size = 3; },
       "--min-dynamic-context-parallel-size 3: expected a power of two from 1 to 8"},
      {[](RunConfig& c) { c.parallel.max_seqlen_per_dp_cp_rank = 3; },
       "--seq-length 32 by 8 ranks at most, 4 tokens each: raise --max-seqlen-per-dp-cp-rank 3"},
  };
  for (const auto& [change, part] : cases) {
    const std::string message = with(change);
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
}

TEST(Resolve, DistributedSaves) {
  const auto with = [](std::int64_t tp, bool sequence_parallel, const char* granularity) {
    return problem([=](RunConfig& c) {
      c.parallel.world_size = c.parallel.tensor_model_parallel_size = tp;
      c.parallel.sequence_parallel = sequence_parallel;
      c.model.distribute_saved_activations = true;
      c.model.recompute_granularity = granularity;
      if (c.model.recompute_granularity != "full") return;
      c.model.recompute_method = "uniform";
      c.model.recompute_num_layers = 1;
    });
  };
  EXPECT_EQ(with(2, false, "full"), "");
  EXPECT_NE(with(1, false, "full").find("--tensor-model-parallel-size 1 is one"),
            std::string::npos);
  EXPECT_NE(with(2, true, "full").find("drop one of the two"), std::string::npos);
  EXPECT_NE(with(2, false, "selective").find("full, not 'selective'"), std::string::npos);
}

}  // namespace
}  // namespace pentatron::config
