// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "tests/functional/tiny_run.h"

// Each test fails when the program ignores the option that it is named after.
namespace pentatron::functional {
namespace {

constexpr double kFp32 = 1e-5;
constexpr double kFp64 = 1e-12;

Options on_threads(const Options& options, int ranks) {
  return options.with("--distributed-backend", "threads").with("--world-size", ranks);
}

Options four_heads() { return base().with("--num-attention-heads", 4); }

nlohmann::json layout_of(const Options& options) {
  const std::filesystem::path folder = new_folder();
  const TinyRun run = train(saving(options.with("--train-iters", 1), folder));
  return manifest(folder, 1).value("layout", nlohmann::json::object());
}

// Ranks that hold a share of Adam's first moments.
std::size_t files_of_moments(const Options& options) {
  const std::filesystem::path folder = new_folder();
  const TinyRun run = train(saving(options.with("--train-iters", 1), folder));
  std::set<std::string> files;
  const nlohmann::json all = manifest(folder, 1);
  for (const auto& tensor : all.value("tensors", nlohmann::json::array())) {
    if (!tensor.at("name").get<std::string>().starts_with("exp_avg/")) continue;
    for (const auto& slice : tensor.at("slices")) files.insert(slice.at("file"));
  }
  return files.size();
}

int axis(const nlohmann::json& layout, const char* name) {
  return layout.value("axes", nlohmann::json::object()).value(name, 0);
}

}  // namespace

TEST(Options, Layout) {
  const Options tp = on_threads(four_heads(), 2).with("--tensor-model-parallel-size", 2);
  const Options pp = on_threads(four_heads(), 2).with("--pipeline-model-parallel-size", 2);
  const Options sp = tp.with("--sequence-parallel");
  for (const Options& layout : {tp, pp, sp}) {
    expect_same_losses(train(layout), train(four_heads()), kFp32);
    expect_same_losses(train(layout.with("--fp64")), train(four_heads().with("--fp64")), kFp64);
  }
  EXPECT_EQ(axis(layout_of(four_heads()), "tp"), 1);
  EXPECT_EQ(axis(layout_of(tp), "tp"), 2);
  EXPECT_EQ(axis(layout_of(tp), "pp"), 1);
  EXPECT_EQ(axis(layout_of(pp), "pp"), 2);
  EXPECT_EQ(axis(layout_of(pp), "tp"), 1);
  EXPECT_FALSE(layout_of(tp).value("sequence_parallel", true));
  EXPECT_TRUE(layout_of(sp).value("sequence_parallel", false));
}

TEST(Options, ContextParallel) {
  const Options cp = on_threads(four_heads(), 2).with("--context-parallel-size", 2);
  const TinyRun run = train(cp);
  expect_same_losses(run, train(four_heads()), kFp32);
  expect_same_losses(train(cp.with("--fp64")), train(four_heads().with("--fp64")), kFp64);
  // The ranks share samples: none are added.
  EXPECT_EQ(train(cp.without("--global-batch-size")).series("train", "consumed_samples").at(0), 2);
  EXPECT_EQ(axis(layout_of(cp), "cp"), 2);
  EXPECT_EQ(axis(layout_of(four_heads()), "cp"), 1);
}

// With four ranks: tp-cp-ep-dp-pp puts the second stage on ranks 2 and 3, tp-cp-ep-pp-dp on 1
// and 3.
TEST(Options, UseTpPpDpMapping) {
  const Options pipeline = on_threads(base(), 4).with("--pipeline-model-parallel-size", 2);
  const Options mapped = pipeline.with("--use-tp-pp-dp-mapping");
  const auto file_of_head = [](const Options& options) {
    const std::filesystem::path folder = new_folder();
    const TinyRun run = train(saving(options.with("--train-iters", 1), folder));
    const nlohmann::json all = manifest(folder, 1);
    for (const auto& tensor : all.value("tensors", nlohmann::json::array())) {
      if (tensor.at("name") != "param/decoder.final_layernorm.weight") continue;
      return tensor.at("slices").at(0).at("file").get<std::string>();
    }
    return std::string();
  };
  EXPECT_EQ(file_of_head(pipeline), "rank_00002.safetensors");
  EXPECT_EQ(file_of_head(mapped), "rank_00001.safetensors");
  for (const Options& options : {mapped, mapped.with("--use-distributed-optimizer"),
                                 on_threads(four_heads(), 8)
                                     .with("--pipeline-model-parallel-size", 2)
                                     .with("--tensor-model-parallel-size", 2)
                                     .with("--use-tp-pp-dp-mapping")}) {
    const Options one = options.has("--tensor-model-parallel-size") ? four_heads() : base();
    expect_same_losses(train(options), train(one), kFp32);
    expect_same_losses(train(options.with("--fp64")), train(one.with("--fp64")), kFp64);
  }
  expect_no_effect(try_train(base().with("--use-tp-pp-dp-mapping")).program,
                   "--use-tp-pp-dp-mapping");
}

// Parameters of each pipeline rank, as the start of a run prints them.
std::vector<std::int64_t> parameters_of_ranks(const TinyRun& run, int ranks) {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string label = "(0, 0, " + std::to_string(rank) + "): ";
    const std::size_t at = run.program.out.find(label);
    EXPECT_NE(at, std::string::npos) << run.program.out;
    if (at == std::string::npos) return {};
    counts.push_back(std::stoll(run.program.out.substr(at + label.size())));
  }
  return counts;
}

TEST(Options, UnevenPipeline) {
  const Options deep = base().with("--num-layers", 4);
  const Options even = on_threads(deep, 2).with("--pipeline-model-parallel-size", 2);
  const TinyRun whole = train(deep.with("--fp64"));
  const std::vector<std::int64_t> equal = parameters_of_ranks(train(even), 2);
  ASSERT_EQ(equal.size(), 2U);
  // Of width 16: two norms, four products with biases, feed-forward of 64.
  constexpr std::int64_t kLayer =
      4 * 16 + (16 * 48 + 48) + (16 * 16 + 16) + (16 * 64 + 64) + (64 * 16 + 16);
  const auto shifted = [&](const Options& options, std::int64_t layers) {
    const TinyRun run = train(options.with("--fp64"));
    expect_same_losses(run, whole, kFp64);
    const std::vector<std::int64_t> counts = parameters_of_ranks(run, 2);
    ASSERT_EQ(counts.size(), 2U);
    // Layers that the first rank has more than half of them.
    EXPECT_EQ(counts[0], equal[0] + layers * kLayer);
    EXPECT_EQ(counts[1], equal[1] - layers * kLayer);
  };
  shifted(even.with("--decoder-first-pipeline-num-layers", 1), -1);
  shifted(even.with("--decoder-last-pipeline-num-layers", 1), 1);
  shifted(even.with("--decoder-first-pipeline-num-layers", 3)
              .with("--decoder-last-pipeline-num-layers", 1),
          1);
  shifted(even.with("--pipeline-model-parallel-layout", "Et|tttL"), -1);
  // Numbers that do not add up to the layers.
  expect_refusal(try_train(even.with("--decoder-first-pipeline-num-layers", 3)
                               .with("--decoder-last-pipeline-num-layers", 2))
                     .program,
                 2,
                 {"--num-layers 4", "--decoder-first-pipeline-num-layers 3",
                  "--decoder-last-pipeline-num-layers 2"});
  expect_refusal(try_train(even.with("--decoder-first-pipeline-num-layers", 5)).program, 2,
                 {"--num-layers 4", "--decoder-first-pipeline-num-layers 5"});
  expect_refusal(try_train(even.with("--pipeline-model-parallel-layout", "Ett|tL")).program, 2,
                 {"3 decoder layers", "--num-layers is 4"});
  const Options odd =
      on_threads(base().with("--num-layers", 3), 2).with("--pipeline-model-parallel-size", 2);
  expect_refusal(try_train(odd).program, 2, {"--num-layers 3"});
  const std::vector<std::int64_t> embedding =
      parameters_of_ranks(train(odd.with("--account-for-embedding-in-pipeline-split")), 2);
  const std::vector<std::int64_t> loss =
      parameters_of_ranks(train(odd.with("--account-for-loss-in-pipeline-split")), 2);
  EXPECT_LT(embedding.at(0), loss.at(0)) << "the rank with the embedding has one layer less";
}

TEST(Options, VirtualStages) {
  const Options deep = base().with("--num-layers", 4);
  const Options pp = on_threads(deep, 2).with("--pipeline-model-parallel-size", 2);
  const TinyRun whole = train(deep.with("--fp64"));
  for (const Options& options : {pp.with("--num-layers-per-virtual-pipeline-stage", 1),
                                 pp.with("--num-virtual-stages-per-pipeline-rank", 2),
                                 pp.with("--pipeline-model-parallel-layout", "Et|t|t|tL")}) {
    expect_same_losses(train(options.with("--fp64")), whole, kFp64);
    // Two stages a rank need as many micro-batches as ranks.
    expect_refusal(try_train(options.with("--micro-batch-size", 4)).program, 2,
                   {"--global-batch-size"});
  }
  // A checkpoint of one layout goes on in the other.
  const std::filesystem::path folder = new_folder();
  (void)train(saving(pp.with("--num-virtual-stages-per-pipeline-rank", 2), folder));
  const std::filesystem::path plain = new_folder();
  (void)train(saving(deep, plain));
  EXPECT_EQ(saved_shapes(folder, 3), saved_shapes(plain, 3));
}

TEST(Options, PipelineSchedule) {
  const Options pp =
      on_threads(base().with("--num-layers", 4), 2).with("--pipeline-model-parallel-size", 2);
  const TinyRun plain = train(pp);
  const Options planned = pp.with("--pipeline-schedule", "zb-auto");
  for (const Options& options :
       {pp.with("--pipeline-schedule", "gpipe"), pp.with("--pipeline-schedule", "zb-h1"), planned,
        planned.with("--pipeline-schedule-max-in-flight", 1)
            .with("--pipeline-schedule-costs", {"1", "1.5", "0.5", "0.1"})}) {
    EXPECT_EQ(train(options).losses(), plain.losses());
  }
  expect_refusal(
      try_train(
          pp.with("--pipeline-schedule", "zb-h1").with("--num-virtual-stages-per-pipeline-rank", 2))
          .program,
      2, {"--pipeline-schedule zb-h1 runs one stage a rank"});
  expect_refusal(try_train(planned.with("--pipeline-schedule-costs", {"1", "1", "1"})).program, 2,
                 {"--pipeline-schedule-costs", "expected four numbers"});
  expect_refusal(try_train(planned.with("--pipeline-schedule-max-in-flight", 0)).program, 2,
                 {"--pipeline-schedule-max-in-flight", "at least 1"});
  expect_no_effect(train(base().with("--pipeline-schedule", "gpipe")).program,
                   "--pipeline-schedule");
  expect_no_effect(train(pp.with("--pipeline-schedule-max-in-flight", 2)).program,
                   "--pipeline-schedule-max-in-flight");
  expect_no_effect(train(pp.with("--pipeline-schedule-costs", {"1", "1", "1", "0"})).program,
                   "--pipeline-schedule-costs");
}

TEST(Options, DistributedOptimizer) {
  const Options replicated = on_threads(base(), 2);
  const Options sharded = replicated.with("--use-distributed-optimizer");
  expect_same_losses(train(sharded), train(base()), kFp32);
  EXPECT_EQ(files_of_moments(replicated), 1U);
  EXPECT_EQ(files_of_moments(sharded), 2U);
}

// What is sharded changes no loss. The layout in the checkpoint says what was.
TEST(Options, ShardingStrategy) {
  const Options fsdp = on_threads(base().with("--fp64"), 2).with("--use-megatron-fsdp");
  for (const char* strategy : {"no_shard", "optim", "optim_grads", "optim_grads_params"}) {
    const Options options = fsdp.with("--data-parallel-sharding-strategy", strategy);
    expect_same_losses(train(options), train(base().with("--fp64")), kFp64);
    EXPECT_EQ(files_of_moments(options), std::string(strategy) == "no_shard" ? 1U : 2U) << strategy;
    EXPECT_EQ(layout_of(options).value("data_parallel_sharding", ""), strategy);
  }
  EXPECT_EQ(layout_of(fsdp).value("data_parallel_sharding", ""), "optim_grads_params");
  EXPECT_EQ(layout_of(on_threads(base(), 2)).value("data_parallel_sharding", ""), "no_shard");
  // The strategy alone says what is sharded, as Megatron has it.
  const Options none = fsdp.with("--data-parallel-sharding-strategy", "no_shard")
                           .with("--use-distributed-optimizer");
  EXPECT_EQ(files_of_moments(none), 1U);
  EXPECT_EQ(layout_of(none).value("data_parallel_sharding", ""), "no_shard");
  expect_no_effect(train(none).program, "--use-distributed-optimizer");
  const Options ahead =
      fsdp.with("--data-parallel-sharding-strategy", "optim").with("--overlap-param-gather");
  expect_same_losses(train(ahead), train(base().with("--fp64")), kFp64);
}

// Buckets that the collectives of one traced step name.
std::size_t traced_buckets(const Options& options, const std::string& collective) {
  const std::filesystem::path folder = new_folder();
  (void)train(options.with("--train-iters", 2)
                  .with("--trace", (folder / "t").string())
                  .with("--profile-step-start", 1)
                  .with("--profile-step-end", 2));
  std::set<std::string> names;
  const auto file = nlohmann::json::parse(read_file(folder / "t/rank-00000.json"));
  for (const nlohmann::json& event : file.at("traceEvents")) {
    const auto name = event.at("name").get<std::string>();
    if (name.starts_with(collective + " bucket ")) names.insert(name);
  }
  return names.size();
}

// However many buckets gradients travel in, the losses are the same.
TEST(Options, GradientBuckets) {
  const Options dp = on_threads(base().with("--untie-embeddings-and-output-weights"), 2);
  const TinyRun whole = train(dp.with("--fp64"));
  EXPECT_EQ(traced_buckets(dp, "all-reduce"), 1U);
  const auto of_one_weight = traced_buckets(dp.with("--ddp-bucket-size", 1), "all-reduce");
  EXPECT_GT(of_one_weight, 20U);
  const auto of_some = traced_buckets(dp.with("--ddp-bucket-size", 1000), "all-reduce");
  EXPECT_GT(of_some, 3U);
  EXPECT_LT(of_some, of_one_weight);
  const auto four = traced_buckets(dp.with("--ddp-num-buckets", 4), "all-reduce");
  EXPECT_GT(four, 2U);
  EXPECT_LE(four, 4U);
  EXPECT_EQ(traced_buckets(dp.with("--ddp-num-buckets", 1), "all-reduce"), 1U);
  const Options sharded = dp.with("--use-distributed-optimizer").with("--overlap-grad-reduce");
  EXPECT_EQ(traced_buckets(sharded.with("--ddp-bucket-size", 1000), "reduce-scatter"), of_some);
  for (const Options& options : {dp, sharded}) {
    for (const Options& cut :
         {options.with("--ddp-bucket-size", 1000), options.with("--ddp-num-buckets", 4)}) {
      expect_same_losses(train(cut.with("--fp64")), whole, kFp64);
    }
  }
  expect_refusal(try_train(dp.with("--ddp-bucket-size", 1000).with("--ddp-num-buckets", 4)).program,
                 2, {"--ddp-bucket-size 1000", "--ddp-num-buckets 4", "drop one"});
  expect_refusal(try_train(dp.with("--ddp-num-buckets", 0)).program, 2,
                 {"--ddp-num-buckets '0'", "at least 1"});
}

// Two copies of the state, each sharded over two ranks: two ranks own pieces, not four.
TEST(Options, OptimizerInstances) {
  const Options sharded = on_threads(base().with("--fp64"), 4)
                              .with("--micro-batch-size", 1)
                              .with("--use-distributed-optimizer");
  const Options instances = sharded.with("--num-distributed-optimizer-instances", 2);
  expect_same_losses(train(instances), train(base().with("--fp64")), kFp64);
  EXPECT_EQ(files_of_moments(sharded), 4U);
  EXPECT_EQ(files_of_moments(instances), 2U);
}

TEST(Options, DistributedBackend) {
  EXPECT_EQ(layout_of(on_threads(base(), 2)).value("backend", ""), "threads");
  const TinyRun gloo = try_train(base().with("--world-size", 2));
  expect_refusal(gloo.program, 2, {"--world-size 2", "pentatron launch"});
  const TinyRun fake = try_train(on_threads(base(), 2).with("--distributed-backend", "fake"));
  expect_refusal(fake.program, 8, {"--distributed-backend fake"});
  // The default tests are shown no GPU.
  const TinyRun nccl = try_train(base().with("--distributed-backend", "nccl"));
  expect_refusal(nccl.program, 2, {"--distributed-backend nccl", "--distributed-backend gloo"});
}

TEST(Options, Device) {
  EXPECT_EQ(try_train(base().with("--device", "cpu")).program.exit_code, 0);
  const TinyRun cuda = try_train(base().with("--device", "cuda"));
  expect_refusal(cuda.program, 2, {"--device cuda", "0 GPUs", "--device cpu"});
  const TinyRun host = try_train(on_threads(base(), 2).with("--device", "cuda"));
  expect_refusal(host.program, 2, {"--distributed-backend threads", "nccl"});
}

TEST(Options, WorldSizeThreads) {
  EXPECT_EQ(axis(layout_of(on_threads(base(), 2)), "dp"), 2);
  EXPECT_EQ(axis(layout_of(on_threads(base(), 1)), "dp"), 1);
  // Without a global batch size each data-parallel rank adds a micro-batch to the step.
  const Options free = base().without("--global-batch-size");
  EXPECT_EQ(train(on_threads(free, 1)).series("train", "consumed_samples").at(0), 2);
  EXPECT_EQ(train(on_threads(free, 2)).series("train", "consumed_samples").at(0), 4);
}

TEST(Options, CpuThreadsPerRank) {
  // Nearly all work is products with a vocabulary of 16,384 rows, shared among the threads of the
  // library. A thread counts that has done a tenth of what the busiest has.
  const auto working_threads = [](int asked) {
    std::map<pid_t, double> seconds;
    const TinyRun run = try_train(
        base()
            .with("--make-vocab-size-divisible-by", 16384)
            .with("--hidden-size", 256)
            .with("--train-iters", 40)
            .with("--cpu-threads-per-rank", asked),
        {.timeout = std::chrono::minutes(3), .observe = [&seconds](const RunningProgram& program) {
           for (const auto& [id, used] : thread_seconds(program.pid)) {
             seconds[id] = used;
           }
         }});
    EXPECT_TRUE(run.program.ok()) << run.program.describe();
    double most = 0;
    for (const auto& [id, used] : seconds) most = std::max(most, used);
    EXPECT_GT(most, 0.2) << "too little work to tell";
    return std::count_if(seconds.begin(), seconds.end(),
                         [most](const auto& thread) { return thread.second >= most / 10; });
  };
  EXPECT_EQ(working_threads(1), 1);
  EXPECT_EQ(working_threads(2), 2);
  // The library gives its products to no more threads than there are cores.
  if (std::thread::hardware_concurrency() >= 4) {
    EXPECT_EQ(working_threads(3), 3);
  }
}

}  // namespace pentatron::functional
