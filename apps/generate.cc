// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "apps/command.h"
#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/log.h"
#include "pentatron/base/timer.h"
#include "pentatron/comm/nccl_backend.h"
#include "pentatron/config/launch_env.h"
#include "pentatron/inference/generator.h"
#include "pentatron/inference/loaded_model.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tokenizers/tokenizer_factory.h"
#include "pentatron/training/placement.h"
#include "pentatron/training/run.h"

namespace pentatron::apps {
namespace {

std::vector<Flags::Spec> specs() {
  return {{"--load", "FOLDER", "a --save, iteration's or Hugging Face folder", "", true},
          {"--ckpt-step", "N", "iteration to load; 0: the newest", "0"},
          {"--prompt", "TEXT", "text to continue", ""},
          {"--prompt-file", "FILE", "the same from a file", ""},
          {"--max-new-tokens", "N", "tokens to write at most", "128"},
          {"--temperature", "T", "0: greedy", "1.0"},
          {"--top-k", "K", "draw from the K likeliest tokens; 0: off", "0"},
          {"--top-p", "P", "draw from the likeliest tokens of this mass; 0: off", "0"},
          {"--seed", "N", "of the draws", "1234"},
          {"--stop", "TEXT", "end before one of these texts", "", false, true},
          {"--vocab-file", "FILE", "default: as trained", ""},
          {"--merge-file", "FILE", "default: as trained", ""},
          {"--tokenizer-model", "PATH", "default: as trained", ""},
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

// Where the first stop text begins in `text`, or npos.
std::size_t find_stop(const std::string& text, const std::vector<std::string>& stops) {
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops) {
    if (!stop.empty()) first = std::min(first, text.find(stop));
  }
  return first;
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
  config::DataConfig& data = model.config.data;
  if (flags.has("--vocab-file")) data.vocab_file = flags.text("--vocab-file");
  if (flags.has("--merge-file")) data.merge_file = flags.text("--merge-file");
  if (flags.has("--tokenizer-model")) data.tokenizer_model = flags.text("--tokenizer-model");
  const std::int64_t vocab_size = model.config.model.vocab_size;
  const auto tokenizer = tokenizers::make_tokenizer(
      data, data.null_tokenizer_vocab_size > 0 ? data.null_tokenizer_vocab_size + 1 : vocab_size);
  PENTATRON_CHECK(model.tokenizer.empty() || tokenizer->identity_hash() == model.tokenizer, kData,
                  "the tokenizer (--vocab-file {}, --merge-file {}, --tokenizer-model {}) is not "
                  "the one that {} "
                  "was trained with",
                  data.vocab_file, data.merge_file, data.tokenizer_model, flags.text("--load"));
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
  const std::vector<std::string> stops = flags.texts("--stop");
  std::vector<std::int32_t> so_far;
  const auto sink = [&](std::int32_t token) {
    if (stops.empty()) return true;
    so_far.push_back(token);
    return find_stop(tokenizer->decode(so_far), stops) == std::string::npos;
  };
  const Timer timer;
  inference::ModelRunner runner = model.runner();
  const inference::Generated result = inference::generate(runner, tokenizer->vocab_size(),
                                                          tokenizer->encode(prompt), options, sink);
  if (backend.rank() != 0) return;
  log::info("{} tokens in {:.2f} s ({:.1f} tokens/s) from iteration {}", result.tokens.size(),
            timer.seconds(),
            static_cast<double>(result.tokens.size()) / std::max(1e-9, timer.seconds()),
            model.iteration);
  if (flags.has("--tokens")) {
    log::print_line(fmt::format("{}", fmt::join(result.tokens, " ")));
    return;
  }
  std::string text = tokenizer->decode(result.tokens);
  if (const std::size_t stop = find_stop(text, stops); stop != std::string::npos) text.resize(stop);
  log::print_line(prompt + tokenizers::replace_invalid_utf8(text));
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
