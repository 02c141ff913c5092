// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "apps/command.h"
#include "apps/tokenizer_flags.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/datasets/bert_dataset.h"
#include "pentatron/datasets/indexed_dataset.h"
#include "pentatron/datasets/inspect.h"
#include "pentatron/datasets/inspect_sample.h"
#include "pentatron/datasets/t5_dataset.h"

namespace pentatron::apps {
namespace {

constexpr std::array kSampleFlags = {"--sample",    "--seq-length",     "--decoder-seq-length",
                                     "--mask-prob", "--short-seq-prob", "--vocab-extra-ids",
                                     "--seed"};

// Sample N of one epoch over the whole corpus, as BERT or T5 would read it.
void show_sample(const std::string& prefix, const Flags& flags) {
  const std::string kind = flags.text("--samples");
  PENTATRON_CHECK(kind == "bert" || kind == "t5", kConfig, "--samples {}: expected bert or t5",
                  kind);
  PENTATRON_CHECK(flags.has("--tokenizer-type"), kConfig, "--samples needs a --tokenizer-type");
  PENTATRON_CHECK(kind == "t5" || !flags.has("--decoder-seq-length"), kConfig,
                  "--decoder-seq-length has no effect with --samples bert");
  const auto tokenizer = tokenizer_of(flags);
  const auto vocabulary = std::make_shared<const datasets::MaskVocabulary>(
      datasets::mask_vocabulary(*tokenizer, flags.integer("--vocab-extra-ids", 0)));
  const auto corpus = std::make_shared<const datasets::IndexedDataset>(prefix);
  const std::int64_t length = flags.integer("--seq-length", 1);
  const std::int64_t seed = flags.integer("--seed", 0);
  const double probability = flags.number("--mask-prob", 0);
  const double shorter = flags.number("--short-seq-prob", 0);
  std::unique_ptr<datasets::SampleSource> source;
  if (kind == "bert") {
    source = std::make_unique<datasets::BertDataset>(
        corpus, vocabulary,
        datasets::BertDatasetOptions{.split = "1",
                                     .sequence_length = length,
                                     .seed = seed,
                                     .short_sequence_probability = shorter,
                                     .mask = {.probability = probability}},
        datasets::DataSplit::kTrain, std::nullopt);
  } else {
    datasets::T5DatasetOptions options{
        .split = "1",
        .encoder_sequence_length = length,
        .decoder_sequence_length = flags.integer("--decoder-seq-length", 1),
        .seed = seed,
        .short_sequence_probability = shorter};
    options.mask.probability = probability;
    source = std::make_unique<datasets::T5Dataset>(corpus, vocabulary, options,
                                                   datasets::DataSplit::kTrain, std::nullopt);
  }
  const std::int64_t number = flags.integer("--sample", 0);
  PENTATRON_CHECK(number < source->num_samples(), kConfig,
                  "{} gives samples 0 to {} an epoch, there is no sample {}", prefix,
                  source->num_samples() - 1, number);
  log::print_line(fmt::format("sample {} of {}\n{}", number, source->num_samples(),
                              datasets::format_sample(source->sample(number), *tokenizer)));
}

}  // namespace

int inspect_dataset(const Words& words) {
  std::vector<Flags::Spec> specs = {
      {"--first-tokens", "N", "tokens of the summary", "16"},
      {"--document", "N", "show document N, counted from 0, instead of the summary", ""},
      {"--max-tokens", "N", "tokens of the document to show; 0: all", "1000"},
      {"--samples", "KIND", "bert or t5: show a sample of such a model instead", ""},
      {"--sample", "N", "which sample, counted from 0", "0"},
      {"--seq-length", "N", "rows of a sample (t5: of the encoder)", "512"},
      {"--decoder-seq-length", "N", "rows of the decoder (t5)", "128"},
      {"--mask-prob", "SHARE", "of the tokens that are masked", "0.15"},
      {"--short-seq-prob", "SHARE", "of samples that are cut shorter", "0.1"},
      {"--vocab-extra-ids", "N", "sentinels after the tokenizer's last token (t5)", "0"},
      {"--seed", "N", "of order and masks", "1234"}};
  for (Flags::Spec& spec : tokenizer_flags(false)) specs.push_back(std::move(spec));
  const Flags flags("inspect_dataset",
                    "Checks a corpus and sums it up, or shows one document: its tokens, and with a "
                    "--tokenizer-type its text; or a sample of masked words, as models of other "
                    "kinds than GPT read them. PREFIX may end in .bin or .idx.",
                    {"PREFIX"}, std::move(specs), words);
  if (flags.help()) return 0;
  const std::string prefix = datasets::corpus_prefix(flags.positional(0));
  if (flags.has("--samples")) {
    for (const char* const name : {"--document", "--max-tokens", "--first-tokens"}) {
      PENTATRON_CHECK(!flags.has(name), kConfig, "{} has no effect with --samples", name);
    }
    show_sample(prefix, flags);
    return 0;
  }
  for (const char* const name : kSampleFlags) {
    PENTATRON_CHECK(!flags.has(name), kConfig, "{} has no effect without --samples", name);
  }
  if (!flags.has("--document")) {
    for (const char* const name : {"--max-tokens", "--tokenizer-type"}) {
      PENTATRON_CHECK(!flags.has(name), kConfig, "{} has no effect without --document", name);
    }
    log::print_line(datasets::format_summary(
        datasets::summarize_dataset(prefix, flags.integer("--first-tokens", 0))));
    return 0;
  }
  PENTATRON_CHECK(!flags.has("--first-tokens"), kConfig,
                  "--first-tokens has no effect with --document");
  std::unique_ptr<tokenizers::Tokenizer> tokenizer;
  if (flags.has("--tokenizer-type")) tokenizer = tokenizer_of(flags);
  log::print_line(datasets::format_document(prefix, {.document = flags.integer("--document", 0),
                                                     .max_tokens = flags.integer("--max-tokens", 0),
                                                     .tokenizer = tokenizer.get()}));
  return 0;
}

}  // namespace pentatron::apps
