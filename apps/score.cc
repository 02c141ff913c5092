// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "apps/command.h"
#include "apps/model_flags.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/timer.h"
#include "pentatron/inference/score_file.h"

namespace pentatron::apps {
namespace {

constexpr std::int64_t kMaxLineMegabytes = 4095;  // the JSON library's limit is 4 GiB

std::vector<Flags::Spec> specs() {
  return with_model_flags(
      {{"--input", "FILE",
        "JSON lines with \"text\" or \"tokens\": files, folders, patterns, or - for standard "
        "input; packed or plain",
        "", true, true},
       {"--output", "FILE", "JSON lines, or - for standard output", "", true},
       {"--force", "", "replace existing files"},
       {"--seq-length", "N", "tokens that the model reads at once; 0: all its positions", "0"},
       {"--stride", "N",
        "score longer documents in windows that begin every N tokens; without it they are refused",
        ""},
       {"--add-bos", "", "the beginning-of-sequence token before every \"text\""},
       {"--micro-batch-tokens", "N", "tokens of one forward, several documents together", "4096"},
       {"--on-bad-line", "stop|skip|report",
        "a line that cannot be used ends the run, is left out, or is left out and named", "stop"},
       {"--max-line-mb", "N", "longest line in MiB", "256"},
       {"--logits", "FILE",
        "all logits in fp32: .npy (rows of all documents) or .safetensors (logits.0, logits.1, "
        "...)",
        ""},
       {"--max-logits-mb", "N", "most that --logits may hold, in MiB", "1024"}});
}

datasets::OnBadLine on_bad_line(const std::string& value) {
  if (value == "stop") return datasets::OnBadLine::kStop;
  if (value == "skip") return datasets::OnBadLine::kSkip;
  PENTATRON_CHECK(value == "report", kConfig,
                  "--on-bad-line must be stop, skip or report, got '{}'", value);
  return datasets::OnBadLine::kReport;
}

inference::ScoreFileOptions options_of(const Flags& flags) {
  const std::int64_t line_megabytes = flags.integer("--max-line-mb", 1);
  PENTATRON_CHECK(line_megabytes <= kMaxLineMegabytes, kConfig, "--max-line-mb {}: at most {}",
                  line_megabytes, kMaxLineMegabytes);
  const std::int64_t logits_megabytes = flags.integer("--max-logits-mb", 1);
  constexpr std::int64_t kMaxLogitsMegabytes = 1 << 20;
  PENTATRON_CHECK(logits_megabytes <= kMaxLogitsMegabytes, kConfig,
                  "--max-logits-mb {}: at most {}", logits_megabytes, kMaxLogitsMegabytes);
  PENTATRON_CHECK(!flags.has("--max-logits-mb") || flags.has("--logits"), kConfig,
                  "--max-logits-mb has no effect without --logits");
  return {.inputs = flags.texts("--input"),
          .output = flags.text("--output"),
          .force = flags.has("--force"),
          .on_bad_line = on_bad_line(flags.text("--on-bad-line")),
          .add_bos = flags.has("--add-bos"),
          .max_line_bytes = static_cast<std::uint64_t>(line_megabytes) << 20,
          .logits = flags.text("--logits"),
          .max_logits_bytes = static_cast<std::uint64_t>(logits_megabytes) << 20};
}

}  // namespace

int score(const Words& words) {
  const Flags flags("score",
                    "The log-probability that a trained checkpoint gives to each token of each "
                    "document.",
                    {}, specs(), words);
  if (flags.help()) return 0;
  const inference::ScoreFileOptions options = options_of(flags);
  const inference::DocumentScorerOptions scoring{
      .context = flags.integer("--seq-length", 0),
      .stride = flags.has("--stride") ? flags.integer("--stride", 1) : 0,
      .max_rows = flags.integer("--micro-batch-tokens", 1),
      .logits = flags.has("--logits")};
  on_model_ranks("score", flags, [&](const inference::LoadOptions& load) {
    inference::LoadedModel model = inference::load_model(flags.text("--load"), load);
    const auto tokenizer = model_tokenizer(flags, model);
    inference::DocumentScorer scorer(model, scoring);
    const Timer timer;
    const inference::ScoreFileStats stats =
        inference::score_files(options, scorer, *tokenizer, model);
    if (load.backend->rank() != 0) return;
    const auto tokens = static_cast<double>(stats.tokens);
    log::info(
        "{} documents, {} predicted tokens, mean log-probability {:.6f}, {:.1f} tokens/s, "
        "from iteration {}",
        stats.documents, stats.tokens, stats.tokens == 0 ? 0.0 : stats.sum / tokens,
        tokens / std::max(1e-9, timer.seconds()), model.iteration);
    if (stats.bad_lines > 0) log::warn("{} lines were left out as bad", stats.bad_lines);
  });
  return 0;
}

}  // namespace pentatron::apps
