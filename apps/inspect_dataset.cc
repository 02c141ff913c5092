// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>
#include <vector>

#include "apps/command.h"
#include "apps/tokenizer_flags.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/datasets/indexed_dataset.h"
#include "pentatron/datasets/inspect.h"

namespace pentatron::apps {

int inspect_dataset(const Words& words) {
  std::vector<Flags::Spec> specs = {
      {"--first-tokens", "N", "tokens of the summary", "16"},
      {"--document", "N", "show document N, counted from 0, instead of the summary", ""},
      {"--max-tokens", "N", "tokens of the document to show; 0: all", "1000"}};
  for (Flags::Spec& spec : tokenizer_flags(false)) specs.push_back(std::move(spec));
  const Flags flags("inspect_dataset",
                    "Checks a corpus and sums it up, or shows one document: its tokens, and with a "
                    "--tokenizer-type its text. PREFIX may end in .bin or .idx.",
                    {"PREFIX"}, std::move(specs), words);
  if (flags.help()) return 0;
  const std::string prefix = datasets::corpus_prefix(flags.positional(0));
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
