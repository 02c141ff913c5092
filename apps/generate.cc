// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "apps/command.h"
#include "apps/text_printer.h"
#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/log.h"
#include "pentatron/base/timer.h"
#include "pentatron/comm/nccl_backend.h"
#include "pentatron/config/launch_env.h"
#include "pentatron/inference/generator.h"
#include "pentatron/inference/loaded_model.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tokenizers/tokenizer_files.h"
#include "pentatron/training/placement.h"
#include "pentatron/training/run.h"

namespace pentatron::apps {
namespace {

std::vector<Flags::Spec> specs() {
  return {{"--load", "FOLDER", "a --save folder, or one iteration's folder", "", true},
          {"--ckpt-step", "N", "iteration to load; 0: the newest", "0"},
          {"--prompt", "TEXT", "text to continue", ""},
          {"--prompt-file", "FILE", "the same from a file", ""},
          {"--max-new-tokens", "N", "tokens to write at most", "128"},
          {"--temperature", "T", "0: greedy", "1.0"},
          {"--top-k", "K", "draw from the K likeliest tokens; 0: off", "0"},
          {"--top-p", "P", "draw from the likeliest tokens of this mass; 0: off", "0"},
          {"--seed", "N", "of the draws", "1234"},
          {"--stop", "TEXT", "end before one of these texts", "", false, true},
          {"--vocab-file", "FILE", "default: the checkpoint's", ""},
          {"--merge-file", "FILE", "default: the checkpoint's", ""},
          {"--tokenizer-model", "PATH", "default: the checkpoint's", ""},
          {"--precision", "NAME", "fp32, bf16 or fp64; default: as trained", ""},
          {"--device", "NAME", "auto, cpu or cuda", "auto"},
          {"--threads", "N", "0: all cores", "0"},
          {"--tensor-model-parallel-size", "N", "ranks that share each layer's matrices", "1"},
          {"--pipeline-model-parallel-size", "N", "ranks that share the layers", "1"},
          {"--no-kv-cache", "", "read the whole text again for every token"},
          {"--tokens", "", "print token ids instead of text"}};
}

std::string read_prompt(const Flags& flags) {
  PENTATRON_CHECK(flags.has("--prompt") != flags.has("--prompt-file"), kConfig,
                  "pentatron generate: give exactly one of --prompt and --prompt-file");
  constexpr std::uint64_t kLongestPrompt = 64ULL << 20;
  return flags.has("--prompt") ? flags.text("--prompt")
                               : read_text_file(flags.text("--prompt-file"), kLongestPrompt);
}

// Ranks and where this one stands: those of a launcher, else threads of this process.
config::ParallelConfig layout_of(const Flags& flags) {
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
                    "pentatron generate: --tensor-model-parallel-size {} x "
                    "--pipeline-model-parallel-size {} are {} ranks, the launcher started {}",
                    parallel.tensor_model_parallel_size, parallel.pipeline_model_parallel_size,
                    parallel.world_size, launched);
    parallel.rank = env.rank.value_or(0);
    parallel.local_rank = env.local_rank.value_or(0);
    parallel.master_addr = env.master_addr.value_or(parallel.master_addr);
    parallel.master_port = env.master_port.value_or(parallel.master_port);
  } else if (parallel.world_size > 1) {
    parallel.distributed_backend = "threads";
  }
  return parallel;
}

// The tokenizer that the model was trained with: the files in its checkpoint, or those that options
// name. Other paths that a checkpoint may hold are never opened.
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
  tokenizers::use_saved_files(options, model.folder);
  if (flags.has("--vocab-file")) options.vocab_file = flags.text("--vocab-file");
  if (flags.has("--merge-file")) options.merge_file = flags.text("--merge-file");
  if (flags.has("--tokenizer-model")) options.tokenizer_model = flags.text("--tokenizer-model");
  return options;
}

// What a rank does: all load their part and write together, the first one prints.
void write_text(const Flags& flags, const std::string& prompt,
                const config::ParallelConfig& parallel, comm::Backend& backend, Device device) {
  inference::LoadedModel model = inference::load_model(
      flags.text("--load"),
      {.step = flags.integer("--ckpt-step", 0),
       .precision = flags.text("--precision"),
       .device = device,
       .backend = &backend,
       .tensor_model_parallel_size = parallel.tensor_model_parallel_size,
       .pipeline_model_parallel_size = parallel.pipeline_model_parallel_size});
  const std::int64_t vocab_size = model.config.model.vocab_size;
  const auto tokenizer = tokenizers::make_tokenizer(tokenizer_of_model(flags, model));
  PENTATRON_CHECK(model.tokenizer.empty() || tokenizer->identity_hash() == model.tokenizer, kData,
                  "the tokenizer is not the one that {} was trained with: name its files with "
                  "--vocab-file, --merge-file or --tokenizer-model",
                  flags.text("--load"));
  PENTATRON_CHECK(tokenizer->vocab_size() <= vocab_size, kData,
                  "the tokenizer has {} tokens, the model only {}: another --vocab-file?",
                  tokenizer->vocab_size(), vocab_size);
  const inference::GenerationOptions options{
      .sampling = {.temperature = flags.number("--temperature", 0),
                   .top_k = flags.integer("--top-k", 0),
                   .top_p = flags.number("--top-p", 0),
                   .seed = static_cast<std::uint64_t>(flags.integer("--seed", 0))},
      .max_new_tokens = flags.integer("--max-new-tokens", 1),
      .stop_tokens = {tokenizer->eod()},
      .use_kv_cache = !flags.has("--no-kv-cache")};
  const bool ids = flags.has("--tokens");
  TextPrinter printer(*tokenizer, prompt, flags.texts("--stop"), backend.rank() == 0 && !ids);
  const auto sink = [&](std::int32_t token) { return printer.add(token); };
  const Timer timer;
  inference::ModelRunner runner = model.runner();
  const inference::Generated result = inference::generate(runner, tokenizer->vocab_size(),
                                                          tokenizer->encode(prompt), options, sink);
  if (backend.rank() != 0) return;
  if (ids) {
    log::print_line(fmt::format("{}", fmt::join(result.tokens, " ")));
  } else {
    printer.finish();
  }
  log::info("{} tokens in {:.2f} s ({:.1f} tokens/s) from iteration {}", result.tokens.size(),
            timer.seconds(),
            static_cast<double>(result.tokens.size()) / std::max(1e-9, timer.seconds()),
            model.iteration);
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

}  // namespace

int generate(const Words& words) {
  const Flags flags("generate", "Continues a prompt with a trained checkpoint.", {}, specs(),
                    words);
  if (flags.help()) return 0;
  config::ParallelConfig parallel = layout_of(flags);
  parallel.cpu_threads_per_rank = flags.integer("--threads", 0);
  const training::Placement place = training::place_run(parallel, flags.text("--device"));
  training::set_up_place(place, /*deterministic_mode=*/false);
  const std::string prompt = read_prompt(flags);
  const comm::ThreadsOptions threads = training::threads_options(parallel);
  if (place.backend == "threads" && parallel.world_size > 1) {
    comm::run_threads(threads, [&](comm::Backend& backend) {
      write_text(flags, prompt, parallel, backend, kCpu);
    });
    return 0;
  }
  tensor::set_up_rank_thread(threads.threads_per_rank);
  const auto backend = make_backend(parallel, place);
  try {
    write_text(flags, prompt, parallel, *backend, place.device);
    backend->shutdown();
  } catch (const std::exception& error) {
    backend->poison(error.what());
    throw;
  }
  return 0;
}

}  // namespace pentatron::apps
