// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/evaluate.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/command.h"
#include "apps/model_flags.h"
#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/log.h"

namespace pentatron::apps {
namespace {

std::vector<Flags::Spec> specs() {
  return with_model_flags(
      {{"--task", "wikitext|lambada|bits-per-byte", "what to measure", "", true},
       {"--data", "FILE",
        "wikitext: the text as published; lambada: JSON lines with \"text\"; bits-per-byte: JSON "
        "lines or a text",
        "", true},
       {"--output", "FILE", "the result as JSON too; replaced where it exists", ""},
       {"--seq-length", "N", "tokens that the model reads at once; 0: as trained", "0"},
       {"--overlapping-eval", "N",
        "of wikitext and bits-per-byte: windows begin every N tokens; default: where the last one "
        "ended",
        ""},
       {"--strict-lambada", "", "the whole last word instead of the last token"},
       {"--micro-batch-tokens", "N", "tokens of one forward", "4096"}});
}

void check(const Flags& flags) {
  const std::string task = flags.text("--task");
  PENTATRON_CHECK(task == "wikitext" || task == "lambada" || task == "bits-per-byte", kConfig,
                  "--task must be wikitext, lambada or bits-per-byte, got '{}'", task);
  PENTATRON_CHECK(!flags.has("--strict-lambada") || task == "lambada", kConfig,
                  "--strict-lambada has no effect on --task {}", task);
  PENTATRON_CHECK(!flags.has("--overlapping-eval") || task != "lambada", kConfig,
                  "--overlapping-eval has no effect on --task lambada");
}

inference::EvaluationNumbers run(const Flags& flags, inference::LoadedModel& model, bool rank_0) {
  const auto tokenizer = model_tokenizer(flags, model);
  const std::string task = flags.text("--task");
  const std::string data = flags.text("--data");
  const std::int64_t asked = flags.integer("--seq-length", 0);
  const std::int64_t context = asked > 0 ? asked : model.config.model.seq_length;
  // Examples of a cloze are never cut.
  std::int64_t stride = task == "lambada" ? 0 : context;
  if (flags.has("--overlapping-eval")) stride = flags.integer("--overlapping-eval", 1);
  inference::DocumentScorer scorer(
      model,
      {.context = context, .stride = stride, .max_rows = flags.integer("--micro-batch-tokens", 1)});
  if (task == "wikitext") return evaluate_wikitext(data, scorer, *tokenizer, rank_0);
  if (task == "bits-per-byte") return evaluate_bits_per_byte(data, scorer, *tokenizer, rank_0);
  return evaluate_lambada(data, flags.has("--strict-lambada"), scorer, *tokenizer, rank_0);
}

std::string number_text(double value) {
  return value == static_cast<double>(static_cast<std::int64_t>(value))
             ? fmt::format("{:.0f}", value)
             : fmt::format("{:.6f}", value);
}

void report(const Flags& flags, const inference::EvaluationNumbers& numbers,
            std::int64_t iteration) {
  nlohmann::ordered_json json = {{"task", flags.text("--task")},
                                 {"data", flags.text("--data")},
                                 {"load", flags.text("--load")},
                                 {"iteration", iteration}};
  for (const auto& [name, value] : numbers) {
    log::print_line(fmt::format("{:<20} {:>16}", name, number_text(value)));
    const auto whole = static_cast<std::int64_t>(value);
    if (value == static_cast<double>(whole)) {
      json[name] = whole;
    } else {
      json[name] = value;
    }
  }
  if (flags.has("--output")) write_file_atomically(flags.text("--output"), json.dump(2) + "\n");
}

}  // namespace

int evaluate(const Words& words) {
  const Flags flags("evaluate", "Zero-shot evaluation of a trained checkpoint.", {}, specs(),
                    words);
  if (flags.help()) return 0;
  check(flags);
  on_model_ranks("evaluate", flags, [&](const inference::LoadOptions& load) {
    inference::LoadedModel model = inference::load_model(flags.text("--load"), load);
    const bool rank_0 = load.backend->rank() == 0;
    const inference::EvaluationNumbers numbers = run(flags, model, rank_0);
    if (rank_0) report(flags, numbers, model.iteration);
  });
  return 0;
}

}  // namespace pentatron::apps
