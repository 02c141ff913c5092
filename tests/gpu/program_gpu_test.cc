// SPDX-License-Identifier: Apache-2.0
// The program on GPUs, end to end, against itself on the CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "pentatron/pipeline_parallel/executor.h"
#include "pentatron/pipeline_parallel/make_schedule.h"
#include "pentatron/tensor/gpu_test_support.h"
#include "tests/functional/tiny_run.h"
#include "tests/functional/tiny_talks.h"

namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;

Options on(const std::string& device, const Options& options) {
  return options.with("--device", device).with("--deterministic-mode");
}

Options llama_kind() {
  return base()
      .with("--position-embedding-type", "rope")
      .with("--max-position-embeddings", 64)
      .with("--num-attention-heads", 4)
      .with("--group-query-attention")
      .with("--num-query-groups", 2)
      .with("--normalization", "RMSNorm")
      .with("--train-iters", 4);
}

// A run for what it saves.
void save_run(const Options& options) { EXPECT_TRUE(train(options).program.ok()); }

// --load of one folder and --save to another, at the same iteration: nothing is trained.
Options copying(const Options& options, const fs::path& from, const fs::path& to) {
  return saving(options, to).with("--load", from.string());
}

TEST(GpuProgram, TrainsAsOnTheCpu) {
  PENTATRON_NEEDS_GPUS(1);
  const Options means = base()
                            .with("--eod-mask-loss")
                            .with("--micro-batch-size", 1)
                            .with("--loss-mean", "micro-batches");
  for (const Options& model :
       {base(), llama_kind(), means, base().with("--rerun-mode", "report_stats")}) {
    const TinyRun cuda = train(on("cuda", model));
    EXPECT_NE(cuda.program.err.find("computing on cuda:0"), std::string::npos);
    expect_same_losses(cuda, train(on("cpu", model)), 1e-4);
  }
}

TEST(GpuProgram, AutoTakesTheGpu) {
  PENTATRON_NEEDS_GPUS(1);
  const TinyRun run = try_train(base());
  EXPECT_TRUE(run.program.ok()) << run.program.describe();
  EXPECT_NE(run.program.err.find("computing on cuda:0"), std::string::npos)
      << run.program.describe();
  const ProgramResult version = call({"--version"});
  EXPECT_NE(version.out.find("GPU 0: "), std::string::npos) << version.describe();
  EXPECT_NE(version.out.find("NCCL "), std::string::npos) << version.describe();
}

// A GPU at work draws tens to some hundreds of watts; the counter moves some ten times a second,
// so the windows are long.
TEST(GpuProgram, TellsTheEnergyOfTheGpu) {
  PENTATRON_NEEDS_GPUS(1);
  const TinyRun run = train(on("cuda", base())
                                .with("--log-energy")
                                .with("--train-iters", 600)
                                .with("--log-interval", 300));
  EXPECT_EQ(count(run.program.out, " | energy per GPU (J/iter/GPU): "), 3U);
  const std::vector<double> joules = run.series("train", "joules_per_gpu");
  const std::vector<double> watts = run.series("train", "watts_per_gpu");
  ASSERT_EQ(joules.size(), 3U);  // at 1, 300 and 600
  ASSERT_EQ(watts.size(), 3U);
  for (const std::size_t line : {std::size_t{1}, std::size_t{2}}) {
    EXPECT_GT(watts[line], 20);
    EXPECT_LT(watts[line], 1500);
    EXPECT_GT(joules[line], 0);
  }
}

// The bytes behind "| max allocated: " of the memory report, whose MB are 2^20 bytes.
double peak_bytes(const std::string& log) {
  const std::string name = "| max allocated: ";
  const std::size_t at = log.rfind(name);
  return at == std::string::npos ? 0 : std::stod(log.substr(at + name.size())) * (1 << 20);
}

// GPT-2 124M, and 4 layers of Llama 3 8B, in bf16, the latter in fp8 too.
TEST(GpuProgram, MemoryIsAsPredicted) {
  PENTATRON_NEEDS_GPUS(1);
  const Options common = Options{{"--mock-data", {}},
                                 {"--tokenizer-type", {"NullTokenizer"}},
                                 {"--bf16", {}},
                                 {"--train-iters", {"3"}},
                                 {"--log-interval", {"1"}},
                                 {"--eval-iters", {"0"}},
                                 {"--lr", {"1e-4"}},
                                 {"--attention-dropout", {"0"}},
                                 {"--hidden-dropout", {"0"}}};
  const Options gpt2 = common.with("--num-layers", 12)
                           .with("--hidden-size", 768)
                           .with("--num-attention-heads", 12)
                           .with("--seq-length", 1024)
                           .with("--max-position-embeddings", 1024)
                           .with("--vocab-size", 50256)
                           .with("--micro-batch-size", 16)
                           .with("--global-batch-size", 32);
  const Options llama = common.with("--num-layers", 4)
                            .with("--hidden-size", 4096)
                            .with("--ffn-hidden-size", 14336)
                            .with("--num-attention-heads", 32)
                            .with("--group-query-attention")
                            .with("--num-query-groups", 8)
                            .with("--seq-length", 8192)
                            .with("--max-position-embeddings", 8192)
                            .with("--normalization", "RMSNorm")
                            .with("--swiglu")
                            .with("--position-embedding-type", "rope")
                            .with("--disable-bias-linear")
                            .with("--untie-embeddings-and-output-weights")
                            .with("--vocab-size", 128255)
                            .with("--micro-batch-size", 1)
                            .with("--global-batch-size", 2);
  const Options fp8 = llama.with("--fp8-format", "hybrid").with("--fp8-recipe", "tensorwise");
  const Options blocks = llama.with("--fp8-format", "e4m3").with("--fp8-recipe", "blockwise");
  const Options again = llama.with("--recompute-granularity", "full")
                            .with("--recompute-method", "uniform")
                            .with("--recompute-num-layers", 1);
  for (const auto& [name, options] : {std::pair<const char*, const Options&>{"GPT-2 124M", gpt2},
                                      {"Llama", llama},
                                      {"Llama in fp8", fp8},
                                      {"Llama in fp8, blockwise", blocks},
                                      {"Llama, layers made again", again}}) {
    const fs::path file = new_folder() / "plan.json";
    const ProgramResult dry =
        call(options.with("--dry-run").with("--dry-run-json", file.string()).words("pretrain_gpt"));
    ASSERT_TRUE(dry.ok()) << dry.describe();
    const double planned =
        nlohmann::json::parse(read_file(file)).at("rank").at("memory").at("total").get<double>();
    const ProgramResult run = call(options.with("--device", "cuda").words("pretrain_gpt"));
    ASSERT_TRUE(run.ok()) << run.describe();
    const double peak = peak_bytes(run.out);
    EXPECT_NEAR(planned / peak, 1.0, 0.05) << name << ": planned " << planned << ", peak " << peak;
    std::cout << name << ": planned / peak " << planned / peak << " of " << peak / (1 << 30)
              << " GiB\n";
  }
}

// What is under a folder, by path.
std::map<std::string, std::string> files_under(const fs::path& folder) {
  std::map<std::string, std::string> files;
  if (!fs::exists(folder)) return files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files[entry.path().string()] = read_file(entry.path());
  }
  return files;
}

// The fastest algorithms of fp8 products are measured once; a damaged file costs a warning; a
// deterministic run measures nothing.
TEST(GpuProgram, KeepsChoicesOfAlgorithms) {
  PENTATRON_NEEDS_GPUS(1);
  const Options options = llama_kind()
                              .with("--bf16")
                              .with("--fp8-format", "e4m3")
                              .with("--fp8-recipe", "tensorwise")
                              .with("--device", "cuda");
  const auto run_with = [](const Options& how, const fs::path& cache) {
    TinyRun run = try_train(how, {.environment = {{"XDG_CACHE_HOME", cache.string()}}});
    EXPECT_TRUE(run.program.ok()) << run.program.describe();
    return run;
  };
  const fs::path cache = new_folder(), unused = new_folder();
  (void)run_with(options, cache);
  const auto first = files_under(cache);
  ASSERT_EQ(first.size(), 1U) << "files in the cache folder";
  const auto& [path, text] = *first.begin();
  EXPECT_NE(path.find("pentatron/cublaslt-"), std::string::npos) << path;
  EXPECT_GT(count(text, "\n"), 4U) << "entries:\n" << text;
  (void)run_with(options, cache);
  EXPECT_EQ(files_under(cache), first) << "a second run has nothing to measure";
  std::ofstream(path) << "1 2 3\n";
  const TinyRun damaged = run_with(options, cache);
  EXPECT_NE(damaged.program.err.find("is damaged"), std::string::npos)
      << damaged.program.describe();
  EXPECT_EQ(count(files_under(cache).at(path), "\n"), count(text, "\n")) << "written anew";
  (void)run_with(options.with("--deterministic-mode"), unused);
  EXPECT_TRUE(files_under(unused).empty()) << "a deterministic run takes the first choices";
}

// Kernels are recorded, lie on the host's time axis and name the layer that launched them; the
// traced run's losses are those of a run without.
TEST(GpuProgram, TracesKernels) {
  PENTATRON_NEEDS_GPUS(1);
  const fs::path folder = new_folder();
  const Options plain = on("cuda", base());
  const TinyRun traced = train(plain.with("--trace", folder.string())
                                   .with("--profile-step-start", 1)
                                   .with("--profile-step-end", 3));
  EXPECT_EQ(traced.losses(), train(plain).losses());
  const nlohmann::json file = nlohmann::json::parse(read_file(folder / "rank-00000.json"));
  const nlohmann::json& events = file.at("traceEvents");
  std::map<std::int64_t, std::string> lanes;
  double host_begin = 1e300;
  double host_end = 0;
  std::map<std::string, int> kernels;  // by unit
  for (const nlohmann::json& event : events) {
    if (event.at("ph") == "M") {
      if (event.at("name") == "thread_name") lanes[event.at("tid")] = event.at("args").at("name");
      continue;
    }
    if (event.at("ph") == "C") continue;  // a counter has no length
    const double begin = event.at("ts");
    const bool on_gpu = lanes.at(event.at("tid")).starts_with("GPU stream ");
    if (!on_gpu) {
      host_begin = std::min(host_begin, begin);
      host_end = std::max(host_end, begin + event.at("dur").get<double>());
    } else if (event.contains("args") && event.at("args").contains("unit")) {
      ++kernels[event.at("args").at("unit")];
    }
  }
  for (const char* unit : {"forward embedding", "forward decoder.layers.1", "backward head",
                           "backward decoder.layers.0"}) {
    EXPECT_GT(kernels[unit], 3) << unit;
  }
  // Two steps of two micro-batches with as many kernels each.
  EXPECT_EQ(kernels["forward decoder.layers.0"], kernels["forward decoder.layers.1"]);
  EXPECT_EQ(kernels["forward decoder.layers.0"] % 4, 0);
  for (const nlohmann::json& event : events) {
    if (event.at("ph") != "X") continue;
    EXPECT_GT(event.at("ts").get<double>(), host_begin - 10'000);
    EXPECT_LT(event.at("ts").get<double>(), host_end + 1'000'000);
  }
  const ProgramResult told = call({"profile", folder.string()});
  EXPECT_NE(told.out.find("GPU busy "), std::string::npos) << told.describe();
}

TEST(GpuProgram, LargestAttentionLogitAndAttentionDropoutAsOnTheCpu) {
  PENTATRON_NEEDS_GPUS(1);
  const Options options =
      base().with("--fp64").with("--log-max-attention-logit").with("--attention-dropout", "0.2");
  const TinyRun cuda = train(on("cuda", options)), cpu = train(on("cpu", options));
  expect_same_losses(cuda, cpu, 1e-9);
  EXPECT_NE(cuda.first_loss(), train(on("cuda", base().with("--fp64"))).first_loss());
  const std::vector<double> theirs = cpu.series("train", "max_attention_logit");
  const std::vector<double> ours = cuda.series("train", "max_attention_logit");
  ASSERT_EQ(ours.size(), theirs.size());
  ASSERT_FALSE(ours.empty());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_NEAR(ours[i], theirs[i], 1e-8 * std::abs(theirs[i])) << i;
  }
}

TEST(GpuProgram, QkClipAsOnTheCpu) {
  PENTATRON_NEEDS_GPUS(1);
  const Options plain = llama_kind().with("--fp64");
  const Options clipped =
      plain.with("--qk-clip").with("--qk-clip-threshold", "0.001").with("--qk-clip-alpha", "0.3");
  const TinyRun cuda = train(on("cuda", clipped));
  expect_same_losses(cuda, train(on("cpu", clipped)), 1e-9);
  EXPECT_NE(cuda.last_loss(), train(on("cuda", plain)).last_loss());
}

TEST(GpuProgram, CheckpointsPassBetweenGpuAndCpu) {
  PENTATRON_NEEDS_GPUS(1);
  for (const auto& [first, second] :
       {std::pair<std::string, std::string>{"cuda", "cpu"}, {"cpu", "cuda"}}) {
    SCOPED_TRACE(first + " to " + second);
    const fs::path made = new_folder();
    save_run(saving(on(first, llama_kind()), made));
    const fs::path there = new_folder();
    save_run(copying(on(second, llama_kind()), made, there));
    EXPECT_EQ(state_hash(there), state_hash(made));
    const fs::path back = new_folder();
    save_run(copying(on(first, llama_kind()), there, back));
    EXPECT_EQ(state_hash(back), state_hash(made));
  }
}

TEST(GpuProgram, ResumesExactly) {
  PENTATRON_NEEDS_GPUS(1);
  for (const bool bf16 : {false, true}) {
    const Options model = on("cuda", bf16 ? llama_kind().with("--bf16") : llama_kind());
    const fs::path whole = new_folder();
    save_run(saving(model, whole));
    const fs::path parts = new_folder();
    save_run(saving(model.with("--exit-interval", 2), parts));
    EXPECT_EQ(saved_iterations(parts), std::vector<int>{2});
    save_run(resuming(model, parts));
    EXPECT_EQ(state_hash(parts), state_hash(whole)) << (bf16 ? "bf16" : "fp32");
  }
}

TEST(GpuProgram, WritesTheTokensOfTheCpu) {
  PENTATRON_NEEDS_GPUS(1);
  const fs::path folder = new_folder();
  save_run(saving(on("cpu", llama_kind().with("--train-iters", 30)), folder));
  const auto tokens = [&](const std::string& device, bool cache) {
    std::vector<std::string> words{"generate", "--load",        folder.string(),
                                   "--prompt", "3 17 29 5",     "--max-new-tokens",
                                   "40",       "--temperature", "0",
                                   "--tokens", "--device",      device};
    if (!cache) words.push_back("--no-kv-cache");
    const ProgramResult result = call(words);
    EXPECT_TRUE(result.ok()) << result.describe();
    return result.out;
  };
  const std::string cpu = tokens("cpu", true);
  EXPECT_GT(cpu.size(), 10U);
  EXPECT_EQ(tokens("cuda", true), cpu);
  EXPECT_EQ(tokens("cuda", false), cpu);
}

TinyRun launch(int ranks, const Options& options) {
  TinyRun run;
  run.folder = new_folder();
  run.metrics_file = run.folder / "metrics.jsonl";
  std::vector<std::string> words{"launch", "--nproc-per-node", std::to_string(ranks)};
  for (const std::string& word :
       options.with("--metrics-file", run.metrics_file.string()).words("pretrain_gpt")) {
    words.push_back(word);
  }
  ProgramRequest request;
  request.words = words;
  request.timeout = std::chrono::milliseconds(180'000);
  run.program = run_program(request);
  EXPECT_TRUE(run.program.ok()) << run.program.describe();
  return run;
}

TEST(GpuProgram, TwoGpusTrainAsOne) {
  PENTATRON_NEEDS_GPUS(2);
  const Options model = on("cuda", llama_kind().with("--num-layers", 2));
  const TinyRun alone = train(model);
  for (const Options& layout :
       {model, model.with("--use-distributed-optimizer"),
        model.with("--tensor-model-parallel-size", 2),
        model.with("--tensor-model-parallel-size", 2).with("--sequence-parallel"),
        model.with("--pipeline-model-parallel-size", 2)}) {
    const TinyRun two = launch(2, layout);
    EXPECT_NE(two.program.err.find("computing on cuda:"), std::string::npos);
    expect_same_losses(two, alone, 1e-4);
  }
}

// Conversations of unlike length over nccl groups of one and of two GPUs: the losses of one.
TEST(GpuProgram, DynamicContextOnTwoGpus) {
  PENTATRON_NEEDS_GPUS(2);
  const Options one = on("cuda", talking()
                                     .with("--position-embedding-type", "rope")
                                     .with("--num-attention-heads", 4)
                                     .with("--train-iters", 4));
  const TinyRun alone = train(one);
  const Options dynamic = one.with("--micro-batch-size", 1)
                              .with("--hybrid-context-parallel")
                              .with("--max-seqlen-per-dp-cp-rank", 32);
  for (const Options& layout :
       {dynamic, dynamic.with("--context-parallel-size", 2),
        dynamic.with("--cp-comm-type", "all_gather"), dynamic.with("--use-distributed-optimizer"),
        dynamic.with("--min-dynamic-context-parallel-size", 2)}) {
    const TinyRun two = launch(2, layout);
    EXPECT_NE(two.program.err.find("computing on cuda:"), std::string::npos);
    expect_same_losses(two, alone, 1e-4);
  }
}

// The schedule's actions of a trace, and the list that was made for a rank, as text.
std::vector<std::string> executed(const fs::path& file) {
  std::vector<std::pair<double, std::string>> actions;
  const nlohmann::json whole = nlohmann::json::parse(read_file(file));
  std::map<std::int64_t, std::string> lanes;
  for (const nlohmann::json& event : whole.at("traceEvents")) {
    if (event.at("ph") == "M" && event.at("name") == "thread_name") {
      lanes[event.at("tid")] = event.at("args").at("name");
    }
    if (event.at("ph") != "X" || lanes.at(event.at("tid")) != pipeline_parallel::kScheduleLane) {
      continue;
    }
    const nlohmann::json& args = event.at("args");
    actions.emplace_back(
        event.at("ts").get<double>(),
        fmt::format("{} {} {}", event.at("name").get<std::string>(), args.at("chunk").get<int>(),
                    args.at("micro_batch").get<int>()));
  }
  std::ranges::sort(actions);
  std::vector<std::string> names;
  for (const auto& [begin, name] : actions) names.push_back(name);
  return names;
}

std::vector<std::string> planned(const pipeline_parallel::ActionList& list) {
  std::vector<std::string> names;
  for (const pipeline_parallel::Action& action : list) {
    names.push_back(fmt::format("{} {} {}", pipeline_parallel::to_string(action.kind), action.chunk,
                                action.micro_batch));
  }
  return names;
}

// Over nccl, too, what was done is the schedule in its order, W actions in their slots.
TEST(GpuProgram, ExecutedOrderIsTheSchedules) {
  PENTATRON_NEEDS_GPUS(2);
  constexpr int kMicroBatches = 4;
  struct Case {
    const char* schedule;
    int chunks;
  };
  for (const Case& c : {Case{"1f1b", 1}, {"gpipe", 1}, {"1f1b", 2}, {"zb-h1", 1}, {"zb-auto", 1}}) {
    const fs::path folder = new_folder();
    Options options = on("cuda", llama_kind())
                          .with("--num-layers", 4)
                          .with("--micro-batch-size", 1)
                          .with("--global-batch-size", kMicroBatches)
                          .with("--pipeline-model-parallel-size", 2)
                          .with("--pipeline-schedule", c.schedule)
                          .with("--trace", folder.string())
                          .with("--profile-step-start", 2)
                          .with("--profile-step-end", 3);
    if (c.chunks > 1) {
      options = options.with("--num-virtual-stages-per-pipeline-rank", c.chunks);
    }
    ASSERT_TRUE(launch(2, options).program.ok());
    const auto lists = pipeline_parallel::make_schedule(
        {.name = c.schedule},
        {.num_ranks = 2, .num_micro_batches = kMicroBatches, .num_chunks = c.chunks});
    for (const std::size_t rank : {0U, 1U}) {
      EXPECT_EQ(executed(folder / fmt::format("rank-{:05}.json", rank)), planned(lists.at(rank)))
          << c.schedule << " rank " << rank;
    }
  }
}

struct Kernels {
  std::vector<std::pair<double, double>> messages;  // begin and end in microseconds
  std::vector<std::pair<double, double>> computing;
};

Kernels kernels_of(const fs::path& file) {
  const nlohmann::json whole = nlohmann::json::parse(read_file(file));
  std::map<std::int64_t, std::string> lanes;
  Kernels kernels;
  for (const nlohmann::json& event : whole.at("traceEvents")) {
    if (event.at("ph") == "M" && event.at("name") == "thread_name") {
      lanes[event.at("tid")] = event.at("args").at("name");
    }
    if (event.at("ph") != "X" || !lanes.at(event.at("tid")).starts_with("GPU stream ")) continue;
    const double begin = event.at("ts");
    const std::pair<double, double> span{begin, begin + event.at("dur").get<double>()};
    const std::string name = event.at("name");
    if (name.find("SendRecv") != std::string::npos) kernels.messages.push_back(span);
    if (!name.starts_with("nccl")) kernels.computing.push_back(span);
  }
  return kernels;
}

double microseconds_together(const Kernels& kernels) {
  double together = 0;
  for (const auto& [begin, end] : kernels.messages) {
    for (const auto& [from, to] : kernels.computing) {
      together += std::max(0.0, std::min(end, to) - std::max(begin, from));
    }
  }
  return together;
}

// Messages between pipeline stages run beside kernels of the model, on both ranks: of layers so
// wide that the host queues work faster than the GPUs do it.
TEST(GpuProgram, MessagesOverlapWithCompute) {
  PENTATRON_NEEDS_GPUS(2);
  const fs::path folder = new_folder();
  const Options options = on("cuda", llama_kind())
                              .without("--data-path")
                              .without("--data-cache-path")
                              .with("--num-layers", 4)
                              .with("--hidden-size", 2048)
                              .with("--num-attention-heads", 16)
                              .with("--ffn-hidden-size", 8192)
                              .with("--seq-length", 2048)
                              .with("--max-position-embeddings", 2048)
                              .with("--micro-batch-size", 1)
                              .with("--global-batch-size", 8)
                              .with("--pipeline-model-parallel-size", 2)
                              .with("--mock-data")
                              .with("--train-iters", 6)
                              .with("--trace", folder.string())
                              .with("--profile-step-start", 3)
                              .with("--profile-step-end", 5);
  const TinyRun run = launch(2, options);
  ASSERT_TRUE(run.program.ok());
  for (const char* file : {"rank-00000.json", "rank-00001.json"}) {
    const Kernels kernels = kernels_of(folder / file);
    // Two steps of eight micro-batches: each sends one message and receives one.
    EXPECT_EQ(kernels.messages.size(), 32U) << file;
    EXPECT_GT(microseconds_together(kernels), 0) << file;
  }
}

TEST(GpuProgram, MoreRanksThanGpusAreRefused) {
  PENTATRON_NEEDS_GPUS(1);
  const int count = tensor::load_cuda_library().gpus + 1;
  ProgramRequest request;
  request.words = {"launch", "--nproc-per-node", std::to_string(count)};
  const Options options = base().with("--global-batch-size", 2 * count);
  for (const std::string& word : options.words("pretrain_gpt")) request.words.push_back(word);
  const ProgramResult result = run_program(request);
  expect_refusal(result, 2, {std::to_string(count) + " ranks on this machine", "--device cpu"});
}

}  // namespace
}  // namespace pentatron::functional
