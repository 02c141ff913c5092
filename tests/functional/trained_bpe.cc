// SPDX-License-Identifier: Apache-2.0
#include "tests/functional/trained_bpe.h"

#include <gtest/gtest.h>

namespace pentatron::functional {

namespace fs = std::filesystem;

fs::path trained_bpe(const std::string& text, int tokens) {
  const fs::path folder = new_folder();
  write_file(folder / "text.txt", text);
  const ProgramResult made =
      call({"train_tokenizer", "--input", (folder / "text.txt").string(), "--vocab-size",
            std::to_string(tokens), "--output", folder.string()});
  EXPECT_TRUE(made.ok()) << made.describe();
  return folder;
}

Options with_bpe(const Options& options, const fs::path& folder) {
  return options.without("--vocab-size")
      .with("--tokenizer-type", "GPT2BPETokenizer")
      .with("--vocab-file", (folder / "vocab.json").string())
      .with("--merge-file", (folder / "merges.txt").string());
}

std::string bpe_corpus(const std::string& lines, const fs::path& folder) {
  const fs::path made = new_folder();
  write_file(made / "text.jsonl", lines);
  const Options options = with_bpe({{"--input", {(made / "text.jsonl").string()}},
                                    {"--output-prefix", {(made / "corpus").string()}},
                                    {"--append-eod", {}}},
                                   folder);
  const ProgramResult done = call(options.words("preprocess_data"));
  EXPECT_TRUE(done.ok()) << done.describe();
  return (made / "corpus_text_document").string();
}

}  // namespace pentatron::functional
