// SPDX-License-Identifier: Apache-2.0
#include "apps/model_flags.h"

#include <fmt/ranges.h>

#include "pentatron/base/error.h"
#include "pentatron/config/use_launcher.h"
#include "pentatron/tokenizers/tokenizer_factory.h"
#include "pentatron/tokenizers/tokenizer_files.h"
#include "pentatron/training/placement.h"
#include "pentatron/training/run.h"
#include "pentatron/training/saved_options.h"

namespace pentatron::apps {
namespace {

// With --use-mp-args-from-checkpoint-args the sizes that the model was trained with, where flags do
// not say others.
void take_saved_layout(const Flags& flags, config::ParallelConfig& parallel) {
  if (!flags.has("--use-mp-args-from-checkpoint-args")) return;
  const auto saved = training::saved_options(flags.text("--load"), flags.integer("--ckpt-step", 0));
  if (!saved) return;  // load_model() says what is missing
  parallel.tensor_model_parallel_size = saved->config.parallel.tensor_model_parallel_size;
  parallel.pipeline_model_parallel_size = saved->config.parallel.pipeline_model_parallel_size;
}

// Ranks and where this one stands: those of a launcher, else threads of this process.
config::ParallelConfig layout_of(const std::string& command, const Flags& flags) {
  config::ParallelConfig parallel;
  take_saved_layout(flags, parallel);
  const auto size = [&](const char* flag, std::int64_t& value) {
    if (flags.has(flag)) value = flags.integer(flag, 1);
  };
  size("--tensor-model-parallel-size", parallel.tensor_model_parallel_size);
  size("--pipeline-model-parallel-size", parallel.pipeline_model_parallel_size);
  parallel.world_size = parallel.tensor_model_parallel_size * parallel.pipeline_model_parallel_size;
  config::ParallelConfig launcher;
  const bool launched = config::use_launcher(launcher);
  if (launched) {
    PENTATRON_CHECK(launcher.world_size == parallel.world_size, kConfig,
                    "pentatron {}: --tensor-model-parallel-size {} x "
                    "--pipeline-model-parallel-size {} are {} ranks, the launcher started {}",
                    command, parallel.tensor_model_parallel_size,
                    parallel.pipeline_model_parallel_size, parallel.world_size,
                    launcher.world_size);
    launcher.tensor_model_parallel_size = parallel.tensor_model_parallel_size;
    launcher.pipeline_model_parallel_size = parallel.pipeline_model_parallel_size;
    return launcher;
  }
  if (parallel.world_size > 1) parallel.distributed_backend = "threads";
  return parallel;
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
  if (flags.has("--no-use-tokenizer-model-from-checkpoint-args")) {
    PENTATRON_CHECK(
        options.vocab_file.empty() && options.merge_file.empty() && options.tokenizer_model.empty(),
        kConfig,
        "--no-use-tokenizer-model-from-checkpoint-args: name the files of the model's "
        "{} with --vocab-file and --merge-file, or --tokenizer-model",
        options.tokenizer_type);
  } else if (!model.folder.empty()) {
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
      {"--use-checkpoint-args", "", "always so: the model's options are the checkpoint's"},
      {"--use-mp-args-from-checkpoint-args", "", "as many ranks as the model was trained on"},
      {"--no-use-tokenizer-model-from-checkpoint-args", "",
       "the tokenizer's files are those that the options name"},
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
  constexpr std::int64_t kMostThreads = 4096;
  PENTATRON_CHECK(parallel.cpu_threads_per_rank <= kMostThreads, kConfig,
                  "--threads {}: more than {}", parallel.cpu_threads_per_rank, kMostThreads);
  const training::Placement place = training::place_run(parallel, flags.text("--device"));
  training::set_up_place(place, /*deterministic_mode=*/false);
  const inference::LoadOptions load{
      .step = flags.integer("--ckpt-step", 0),
      .precision = flags.text("--precision"),
      .tensor_model_parallel_size = parallel.tensor_model_parallel_size,
      .pipeline_model_parallel_size = parallel.pipeline_model_parallel_size};
  training::on_place(parallel, place, [&](comm::Backend& backend, Device device) {
    inference::LoadOptions mine = load;
    mine.backend = &backend;
    mine.device = device;
    body(mine);
  });
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
