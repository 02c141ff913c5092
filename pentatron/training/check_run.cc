// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/check_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/terminal.h"
#include "pentatron/config/batch_schedule.h"
#include "pentatron/config/distillation.h"
#include "pentatron/datasets/blend.h"
#include "pentatron/datasets/indexed_dataset.h"
#include "pentatron/datasets/remote_file.h"
#include "pentatron/training/dry_run/dry_run.h"
#include "pentatron/training/dry_run/report.h"
#include "pentatron/training/log_format.h"

namespace pentatron::training {
namespace {

namespace fs = std::filesystem;

// Collects what is not there, a line each.
class Files final {
 public:
  void file(std::string_view option, const std::string& path) {
    if (path.empty()) return;
    std::error_code ignored;
    ++checked_;
    if (datasets::is_remote(path)) {
      remote(option, path);
    } else if (!fs::exists(path, ignored)) {
      missing_.push_back(
          fmt::format("missing: {} {}: there is no such file or folder", option, path));
    } else if (::access(path.c_str(), R_OK) != 0) {
      missing_.push_back(fmt::format("missing: {} {}: it may not be read", option, path));
    }
  }
  void corpora(std::string_view option, const std::vector<std::string>& words) {
    if (words.empty()) return;
    for (const std::string& prefix : datasets::parse_blend(words, option).prefixes) {
      file(option, datasets::index_path(prefix).string());
      file(option, datasets::bin_path(prefix).string());
    }
  }
  void add(std::string problem) { missing_.push_back(std::move(problem)); }

  [[nodiscard]] bool any_missing() const { return !missing_.empty(); }
  [[nodiscard]] std::string text() const {
    std::string text;
    for (const std::string& line : missing_) text += line + "\n";
    return text + fmt::format("files       {} checked, {} missing", checked_, missing_.size());
  }

 private:
  void remote(std::string_view option, const std::string& url) {
    try {
      (void)datasets::open_remote(url);
    } catch (const Error& error) {
      const std::string why = error.what();
      missing_.push_back(
          fmt::format("missing: {} {}: {}", option, url, why.substr(0, why.find('\n'))));
    }
  }

  std::size_t checked_ = 0;
  std::vector<std::string> missing_;
};

void check_data(const config::DataConfig& data, Files& files) {
  if (data.mock_data) return;
  files.file("--data-args-path", data.data_args_path);
  files.file("--per-split-data-args-path", data.per_split_data_args_path);
  const std::pair<std::string_view, const std::vector<std::string>*> parts[] = {
      {"--data-path", &data.data_path},
      {"--train-data-path", &data.train_data_path},
      {"--valid-data-path", &data.valid_data_path},
      {"--test-data-path", &data.test_data_path}};
  for (const auto& [option, words] : parts) {
    if (!data.sft) {
      files.corpora(option, *words);
    } else if (!words->empty()) {
      for (const std::string& path : datasets::parse_blend(*words, option).prefixes) {
        files.file(option, path);
      }
    }
  }
}

void check_folders(const config::CheckpointConfig& checkpoint, Files& files) {
  std::error_code ignored;
  const bool fresh = !checkpoint.pretrained_checkpoint.empty() ||
                     (checkpoint.load == checkpoint.save && !checkpoint.exit_on_missing_checkpoint);
  if (!fresh || fs::exists(checkpoint.load, ignored)) files.file("--load", checkpoint.load);
  files.file("--pretrained-checkpoint", checkpoint.pretrained_checkpoint);
  files.file("--export-kd-teacher-load", checkpoint.export_kd_teacher_load);
  files.file("--export-kd-cfg", checkpoint.export_kd_cfg);
  if (checkpoint.save.empty() || !fs::exists(checkpoint.save, ignored)) return;
  if (!fs::is_directory(checkpoint.save, ignored)) {
    files.add(fmt::format("missing: --save {}: it is not a folder", checkpoint.save));
  } else if (::access(checkpoint.save.c_str(), W_OK | X_OK) != 0) {
    files.add(fmt::format("missing: --save {}: it may not be written to", checkpoint.save));
  }
}

std::string run_text(const config::RunConfig& config, double step_flops) {
  const config::TrainingConfig& t = config.training;
  const config::BatchSchedule batches = config::batch_schedule(config);
  const std::int64_t steps =
      t.train_samples > 0 ? batches.iterations_for(t.train_samples) : t.train_iters;
  const auto samples = static_cast<double>(batches.samples_after(steps));
  const double flops =
      step_flops / static_cast<double>(config::running_batch_size(config)) * samples;
  return fmt::format("run         {} steps, {:.0f} samples, {} tokens, {:.3g} FLOPs", steps,
                     samples, short_number(samples * static_cast<double>(config.model.seq_length)),
                     flops);
}

}  // namespace

RunCheck check_run(const config::ParsedOptions& options) {
  const config::RunConfig& config = options.config;
  Files files;
  check_data(config.data, files);
  files.file("--vocab-file", config.data.vocab_file);
  files.file("--merge-file", config.data.merge_file);
  if (config.data.tokenizer_model.find('/') != std::string::npos) {
    files.file("--tokenizer-model", config.data.tokenizer_model);
  }
  check_folders(config.checkpoint, files);
  RunCheck check{.text = files.text(), .files_missing = files.any_missing()};
  std::error_code ignored;
  try {
    const std::string& form = config.checkpoint.export_kd_cfg;
    if (fs::exists(form, ignored)) static_cast<void>(config::read_distillation(form));
    const dry_run::DryRun plan = dry_run::plan_of(options);
    check.text += "\n" + dry_run::short_text(plan) + "\n" + run_text(plan.config, plan.step_flops);
  } catch (const Error& error) {
    const std::string why = error.what();
    // What a run is refused for after its options were read: with the tokenizer, on its ranks.
    check.refused = error.kind() == ErrorKind::kConfig;
    if (check.refused) {
      check.text += "\na run with these options is refused: " + why;
      return check;
    }
    check.text += "\nparameters, memory and tokens are not known: " + why.substr(0, why.find('\n'));
  }
  return check;
}

}  // namespace pentatron::training
