// SPDX-License-Identifier: Apache-2.0
// Samples of unequal length over groups of data x context ranks of unequal size: the losses, norms,
// gradients and weights of one process.
#include "pentatron/training/dynamic_context.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "pentatron/training/llama_test_support.h"
#include "pentatron/training/outcome_test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

constexpr int kSteps = 3;
constexpr std::int64_t kLongest = 96;
constexpr std::int64_t kMaxRows = 24;  // on a rank

// One sample in seven is long; most have two conversations, a few rows count nothing.
class Conversations final : public datasets::SampleSource {
 public:
  [[nodiscard]] std::int64_t num_samples() const override { return 1 << 10; }
  [[nodiscard]] std::int64_t length(std::int64_t i) const override {
    return i % 7 == 3 ? kLongest - i % 5 : i % 5 == 2 ? 37 + i % 3 : 3 + i * 7 % 17;
  }
  [[nodiscard]] std::string identity() const override { return "conversations"; }
  [[nodiscard]] datasets::Sample sample(std::int64_t i) const override {
    const auto rows = static_cast<std::int32_t>(length(i));
    const std::int32_t cut = rows > 6 ? rows / 3 : 0;
    return make_sample(
        rows, cut, [i](std::int64_t t) { return random_token(5, i * 256 + t); },
        [i](std::int64_t t) { return (i + t) % 4 == 0 || i % 6 == 5; });
  }
};

struct DynamicCase {
  const char* name;
  std::int64_t tp = 1;
  std::int64_t cp = 1;
  std::int64_t dp = 1;
  std::string comm = "p2p";
  bool sharded = false;
  std::string recompute = {};
  bool sequence_parallel = false;
  bool llama = false;
  std::int64_t min_group = 1;
};

config::RunConfig config_of(const DynamicCase& c, bool dynamic) {
  return tiny_config({}, [&](config::RunConfig& config) {
    config::ParallelConfig& p = config.parallel;
    p.world_size = dynamic ? c.tp * c.cp * c.dp : 1;
    config.training.precision = "fp64";
    config.training.micro_batch_size = 1;
    config.training.global_batch_size = 16;
    config.optimizer.adam_eps = 1e-3;
    config.model.seq_length = config.model.max_position_embeddings = kLongest;
    if (c.llama) {
      config.model.group_query_attention = true;
      config.model.num_query_groups = 2;
      make_llama(config.model);
      config.model.ffn_hidden_size = 48;
      config.model.hidden_dropout = config.model.attention_dropout = 0;
    }
    if (!dynamic) return;
    p.tensor_model_parallel_size = c.tp;
    p.context_parallel_size = c.cp;
    p.sequence_parallel = c.sequence_parallel;
    p.use_distributed_optimizer = c.sharded;
    p.dynamic_context_parallel = true;
    p.max_seqlen_per_dp_cp_rank = kMaxRows;
    p.min_dynamic_context_parallel_size = c.min_group;
    config.data.sft = true;
    config.model.cp_comm_type = {c.comm};
    if (c.recompute.empty()) return;
    config.model.recompute_granularity = c.recompute == "full" ? "full" : "selective";
    if (c.recompute == "full") {
      config.model.recompute_method = "uniform";
      config.model.recompute_num_layers = 1;
      config.model.distribute_saved_activations = c.tp > 1 && !c.sequence_parallel;
    } else {
      config.model.recompute_modules = {c.recompute};
    }
  });
}

Outcome run(const config::RunConfig& config) {
  const Conversations source;
  return outcome_of(config, kSteps, [&source](Engine& engine) -> NextBatches {
    const auto stream = std::make_shared<BatchStream>(
        source, engine.config(), engine.context().data_rank(), 0, engine.policy(),
        BatchStream::Use::kTraining, kCpu, engine.dynamic_context());
    return [stream] { return stream->next(); };
  });
}

class DynamicContext : public ::testing::TestWithParam<DynamicCase> {};

TEST_P(DynamicContext, EqualsOneProcess) {
  const DynamicCase& c = GetParam();
  const Outcome expected = run(config_of(c, false));
  const Outcome got = run(config_of(c, true));
  EXPECT_LE(*got.rows.rbegin(), kMaxRows);
  EXPECT_GT(got.rows.size(), 2U) << "all micro-batches have as many rows";
  expect_same_outcome(got, expected);
}

const std::vector<DynamicCase>& dynamic_cases() {
  static const std::vector<DynamicCase> kCases = {
      {.name = "dp4", .dp = 4},
      {.name = "dp4_all_gather", .dp = 4, .comm = "all_gather"},
      {.name = "dp4_zero1", .dp = 4, .sharded = true},
      {.name = "cp2_dp2", .cp = 2, .dp = 2},
      {.name = "cp4", .cp = 4},
      {.name = "dp4_core_attn_again", .dp = 4, .recompute = "core_attn"},
      {.name = "dp4_layers_again", .dp = 4, .recompute = "full"},
      {.name = "dp4_norms_again", .dp = 4, .recompute = "layernorm"},
      {.name = "llama_dp8", .dp = 8, .llama = true},
      {.name = "cp2_dp4_zero1", .cp = 2, .dp = 4, .sharded = true},
      {.name = "tp2_dp4", .tp = 2, .dp = 4},
      {.name = "tp2_sp_dp4_zero1_layers_again",
       .tp = 2,
       .dp = 4,
       .sharded = true,
       .recompute = "full",
       .sequence_parallel = true},
      {.name = "tp2_dp4_slices", .tp = 2, .dp = 4, .recompute = "full"},
      {.name = "llama_tp2_cp2_dp2_all_gather",
       .tp = 2,
       .cp = 2,
       .dp = 2,
       .comm = "all_gather",
       .llama = true},
      {.name = "dp8_min2", .dp = 8, .min_group = 2}};
  return kCases;
}

INSTANTIATE_TEST_SUITE_P(Layouts, DynamicContext, ::testing::ValuesIn(dynamic_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

// The plan of a run: its place and the sizes of its groups are those of the grid.
TEST(DynamicContextPlace, PoolCountsContextBeforeData) {
  const config::RunConfig config =
      config_of({.name = "", .tp = 2, .cp = 2, .dp = 2, .sequence_parallel = true}, true);
  std::mutex mutex;
  std::map<std::int64_t, std::int64_t> pool;
  with_engine(config, [&](Engine& engine) {
    ASSERT_NE(engine.dynamic_context(), nullptr);
    const std::lock_guard lock(mutex);
    pool[engine.context().rank()] = engine.dynamic_context()->rank();
    EXPECT_EQ(engine.dynamic_context()->plan_options().num_ranks, 4);
    EXPECT_EQ(engine.dynamic_context()->plan_options().row_multiple, 2);
    EXPECT_EQ(engine.dynamic_context()->plan_options().max_rows_per_rank, kMaxRows);
  });
  for (const auto& [rank, place] : pool) EXPECT_EQ(place, rank / 2);
}

// Width 4096, 3.5 x 4096 feed-forward channels, no output layer to speak of: 2 + 2 + 10.5 parts of
// 4096 x 4096 against 4096 channels of heads.
TEST(DynamicContextPlace, AttentionCost) {
  config::ModelConfig model;
  model.num_layers = 1;
  model.hidden_size = 4096;
  model.num_attention_heads = model.num_query_groups = 32;
  model.kv_channels = 128;
  model.ffn_hidden_size = 14336;
  model.swiglu = true;
  EXPECT_NEAR(attention_cost(model), 1.0 / (14.5 * 4096), 1e-12);
}

}  // namespace
}  // namespace pentatron::training
