// SPDX-License-Identifier: Apache-2.0
#include "apps/model_flags.h"

#include <fmt/ranges.h>

#include "pentatron/base/error.h"
#include "pentatron/comm/nccl_backend.h"
#include "pentatron/config/launch_env.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tokenizers/tokenizer_factory.h"
#include "pentatron/tokenizers/tokenizer_files.h"
#include "pentatron/training/placement.h"
#include "pentatron/training/run.h"

namespace pentatron::apps {
namespace {

// Ranks and where this one stands: those of a launcher, else threads of this process.
config::ParallelConfig layout_of(const std::string& command, const Flags& flags) {
  config::ParallelConfig parallel;
  parallel.tensor_model_parallel_size = flags.integer("--tensor-model-parallel-size", 1);
  parallel.pipeline_model_parallel_size = flags.integer("--pipeline-model-parallel-size", 1);
  parallel.world_size = parallel.tensor_model_parallel_size * parallel.pipeline_model_parallel_size;
  config::Problems problems;
  const config::LaunchEnv env = config::read_launch_env(config::launcher_variables(), problems);
  problems.throw_if_any();
  const std::int64_t launched = env.world_size.value_or(1);
  if (launched > 1) {
    PENTATRON_CHECK(launched == parallel.world_size, kConfig,
                    "pentatron {}: --tensor-model-parallel-size {} x "
                    "--pipeline-model-parallel-size {} are {} ranks, the launcher started {}",
                    command, parallel.tensor_model_parallel_size,
                    parallel.pipeline_model_parallel_size, parallel.world_size, launched);
    parallel.rank = env.rank.value_or(0);
    parallel.local_rank = env.local_rank.value_or(0);
    parallel.master_addr = env.master_addr.value_or(parallel.master_addr);
    parallel.master_port = env.master_port.value_or(parallel.master_port);
  } else if (parallel.world_size > 1) {
    parallel.distributed_backend = "threads";
  }
  return parallel;
}

std::unique_ptr<comm::Backend> make_backend(const config::ParallelConfig& parallel,
                                            const training::Placement& place) {
  if (parallel.world_size == 1) return comm::make_single_backend();
  if (place.backend == "gloo") return comm::make_gloo_backend(training::gloo_options(parallel));
  return comm::make_nccl_backend({.rank = parallel.rank,
                                  .world_size = parallel.world_size,
                                  .master_addr = parallel.master_addr,
                                  .master_port = parallel.master_port,
                                  .timeout = training::gloo_options(parallel).timeout,
                                  .device = place.device});
}

// Where the files of the model's tokenizer are: in its checkpoint, or where options say. Other
// paths that a checkpoint may hold are never opened.
tokenizers::TokenizerOptions tokenizer_of_model(const Flags& flags,
                                                const inference::LoadedModel& model) {
  const config::DataConfig& data = model.config.data;
  const std::int64_t null_vocab_size = data.null_tokenizer_vocab_size;
  tokenizers::TokenizerOptions options = tokenizers::tokenizer_options(
      data, null_vocab_size > 0 ? null_vocab_size + 1 : model.config.model.vocab_size);
  const auto given = [&](const char* flag, std::string& path) {
    if (flags.has(flag)) path.clear();
  };
  given("--vocab-file", options.vocab_file);
  given("--merge-file", options.merge_file);
  given("--tokenizer-model", options.tokenizer_model);
  if (!model.folder.empty()) {
    tokenizers::use_saved_files(options, model.folder);
    const bool used = !options.vocab_file.empty() || !options.merge_file.empty() ||
                      !options.tokenizer_model.empty();
    PENTATRON_CHECK(!used || model.tokenizer_problems.empty(), kCheckpoint,
                    "{}: name the tokenizer's files with --vocab-file, --merge-file or "
                    "--tokenizer-model",
                    fmt::join(model.tokenizer_problems, "; "));
  }
  if (flags.has("--vocab-file")) options.vocab_file = flags.text("--vocab-file");
  if (flags.has("--merge-file")) options.merge_file = flags.text("--merge-file");
  if (flags.has("--tokenizer-model")) options.tokenizer_model = flags.text("--tokenizer-model");
  return options;
}

}  // namespace

std::vector<Flags::Spec> with_model_flags(std::vector<Flags::Spec> more) {
  const std::vector<Flags::Spec> of_model = {
      {"--load", "FOLDER", "a --save, iteration's or Hugging Face folder", "", true},
      {"--ckpt-step", "N", "iteration to load; 0: the newest", "0"},
      {"--vocab-file", "FILE", "default: the checkpoint's", ""},
      {"--merge-file", "FILE", "default: the checkpoint's", ""},
      {"--tokenizer-model", "PATH", "default: the checkpoint's", ""},
      {"--precision", "NAME", "fp32, bf16 or fp64; default: as trained", ""},
      {"--device", "NAME", "auto, cpu or cuda", "auto"},
      {"--threads", "N", "0: all cores", "0"},
      {"--tensor-model-parallel-size", "N", "ranks that share each layer's matrices", "1"},
      {"--pipeline-model-parallel-size", "N", "ranks that share the layers", "1"}};
  more.insert(more.end(), of_model.begin(), of_model.end());
  return more;
}

void on_model_ranks(const std::string& command, const Flags& flags, const RankBody& body) {
  config::ParallelConfig parallel = layout_of(command, flags);
  parallel.cpu_threads_per_rank = flags.integer("--threads", 0);
  const training::Placement place = training::place_run(parallel, flags.text("--device"));
  training::set_up_place(place, /*deterministic_mode=*/false);
  inference::LoadOptions load{
      .step = flags.integer("--ckpt-step", 0),
      .precision = flags.text("--precision"),
      .tensor_model_parallel_size = parallel.tensor_model_parallel_size,
      .pipeline_model_parallel_size = parallel.pipeline_model_parallel_size};
  const comm::ThreadsOptions threads = training::threads_options(parallel);
  if (place.backend == "threads" && parallel.world_size > 1) {
    comm::run_threads(threads, [&](comm::Backend& backend) {
      inference::LoadOptions mine = load;
      mine.backend = &backend;
      body(mine);
    });
    return;
  }
  tensor::set_up_rank_thread(threads.threads_per_rank);
  const auto backend = make_backend(parallel, place);
  load.backend = backend.get();
  load.device = place.device;
  try {
    body(load);
    backend->shutdown();
  } catch (const std::exception& error) {
    backend->poison(error.what());
    throw;
  }
}

std::unique_ptr<tokenizers::Tokenizer> model_tokenizer(const Flags& flags,
                                                       const inference::LoadedModel& model) {
  const std::int64_t vocab_size = model.config.model.vocab_size;
  auto tokenizer = tokenizers::make_tokenizer(tokenizer_of_model(flags, model));
  PENTATRON_CHECK(model.tokenizer.empty() || tokenizer->identity_hash() == model.tokenizer, kData,
                  "the tokenizer is not the one that {} was trained with: name its files with "
                  "--vocab-file, --merge-file or --tokenizer-model",
                  flags.text("--load"));
  PENTATRON_CHECK(tokenizer->vocab_size() <= vocab_size, kData,
                  "the tokenizer has {} tokens, the model only {}: another --vocab-file?",
                  tokenizer->vocab_size(), vocab_size);
  return tokenizer;
}

std::filesystem::path tokenizer_path(const Flags& flags, const inference::LoadedModel& model) {
  return tokenizer_of_model(flags, model).tokenizer_model;
}

}  // namespace pentatron::apps
