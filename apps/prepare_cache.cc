// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "apps/command.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/config/print.h"
#include "pentatron/config/validate.h"
#include "pentatron/datasets/cache_log.h"
#include "pentatron/tokenizers/tokenizer_factory.h"
#include "pentatron/training/checkpointing.h"
#include "pentatron/training/data.h"

namespace pentatron::apps {
namespace {

constexpr std::string_view kWorldSize = "--prepare-cache-world-size";

// The options as rank 0 of the run to come would read them.
config::ParsedOptions options_of(const Words& words) {
  config::ParseRequest request;
  request.words = words;
  request.program_options = {{.name = kWorldSize}};
  request.environment = config::launcher_variables();
  const auto values = config::parse(request).program_values;
  if (const auto found = values.find(kWorldSize); found != values.end()) {
    const std::int64_t size = parse_integer(kWorldSize, found->second.front(), 1);
    request.environment = {{"RANK", "0"},
                           {"WORLD_SIZE", std::to_string(size)},
                           {"LOCAL_RANK", "0"},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", "1"}};
  }
  return config::load_options(request);
}

void print_entries(const datasets::CacheLog& caches) {
  std::size_t unwritten = 0;
  for (const datasets::CacheLog::Line& line : caches.lines()) {
    const bool lost = line.fate == datasets::CacheLog::Fate::kUnwritten;
    unwritten += lost ? 1 : 0;
    const bool served = line.fate == datasets::CacheLog::Fate::kServed;
    log::print_line(fmt::format("  {}: {}-*, {:.1f} MB",
                                lost     ? "not written"
                                : served ? "already whole"
                                         : "written",
                                line.stem, static_cast<double>(line.bytes) / 1e6));
  }
  PENTATRON_CHECK(unwritten == 0, kIo, "{} caches could not be written", unwritten);
}

std::string evaluated(const training::TrainingData& data, datasets::DataSplit split) {
  std::string text;
  for (const training::EvaluationSet& set : data.evaluation_sets(split)) {
    text += fmt::format("{}{}", text.empty() ? "" : " + ", set.dataset->num_samples());
  }
  return text.empty() ? "none" : text;
}

}  // namespace

int prepare_cache(const Words& words) {
  const config::ParsedOptions options = options_of(words);
  if (options.action == config::Action::kHelp) {
    log::print_line(
        "usage: pentatron prepare_cache [--prepare-cache-world-size N] TRAINING OPTIONS\n\n"
        "Builds the index caches that a run with these options will read, and names the files.\n"
        "The world size decides the batch size where --global-batch-size is not given.\n");
    log::print_line(config::help_text(options.help_topic));
    return 0;
  }
  config::RunConfig config = options.config;
  if (config.parallel.rank != 0) return 0;  // one writer is enough
  PENTATRON_CHECK(!config.data.mock_data, kConfig,
                  "--mock-data has no index caches: there is nothing to prepare");
  PENTATRON_CHECK(!config.data.sft, kConfig,
                  "--sft has no index caches: there is nothing to prepare");
  const config::BatchSchedule batches = config::batch_schedule(config);
  config::TrainingConfig& t = config.training;
  if (t.train_samples > 0) t.train_iters = batches.iterations_for(t.train_samples);
  const auto tokenizer = training::make_run_tokenizer(config);
  datasets::CacheLog caches;
  const training::TrainingData data(config, *tokenizer, training::resume_point(config.checkpoint),
                                    &caches);
  const auto& asked = data.counts();
  log::print_line(
      fmt::format("world size {}, data-parallel size {}, global batch size {}\n"
                  "samples asked for: {} for training, {} for validation, {} for the test",
                  config.parallel.world_size, config.parallel.data_parallel_size,
                  config::running_batch_size(config), asked.train, asked.valid, asked.test));
  print_entries(caches);
  log::print_line(fmt::format(
      "samples indexed: {} for training, {} for validation, {} for the test",
      data.train() != nullptr ? std::to_string(data.train()->num_samples()) : "none",
      evaluated(data, datasets::DataSplit::kValid), evaluated(data, datasets::DataSplit::kTest)));
  return 0;
}

}  // namespace pentatron::apps
