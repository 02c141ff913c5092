// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/functional/tiny_run.h"

// Each test fails when the program ignores the option that it is named after.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  if (!fs::exists(folder)) return names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

// vocab.json and merges.txt of a byte-level BPE of `tokens` tokens.
fs::path make_bpe(int tokens) {
  const fs::path folder = new_folder();
  std::string text;
  for (int i = 0; i < 40; ++i) text += "the cat sat on the mat and the rat ran to the hat\n";
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

std::size_t index_files(const fs::path& folder) {
  const std::set<std::string> names = names_in(folder);
  return static_cast<std::size_t>(std::count_if(
      names.begin(), names.end(), [](const std::string& name) { return name.ends_with(".npy"); }));
}

}  // namespace

TEST(Options, DataPath) {
  EXPECT_NE(train(base().with("--data-path", corpus(1))).first_loss(), train(base()).first_loss());
  const TinyRun missing = try_train(base().with("--data-path", corpus(0) + "_missing"));
  EXPECT_EQ(missing.program.exit_code, 4) << missing.program.describe();
}

TEST(Options, Split) {
  const Options evaluating = base().with("--eval-iters", 1);
  const TinyRun all = train(evaluating.with("--split", "100"));
  EXPECT_TRUE(all.series("validation", "lm_loss").empty());
  EXPECT_TRUE(all.series("test", "lm_loss").empty());
  const TinyRun two = train(evaluating.with("--split", "50,50"));
  EXPECT_EQ(two.series("validation", "lm_loss").size(), 1U);
  EXPECT_TRUE(two.series("test", "lm_loss").empty());
  const TinyRun three = train(evaluating.with("--split", "50,25,25"));
  EXPECT_EQ(three.series("test", "lm_loss").size(), 1U);
  // Half of the documents in another order than all of them.
  EXPECT_NE(two.losses(), all.losses());
}

TEST(Options, DataCachePath) {
  const fs::path cache = new_folder() / "cache";
  const TinyRun run = train(base().with("--data-cache-path", cache.string()));
  EXPECT_EQ(index_files(cache), 3U);  // document, sample and shuffle index of the training part
  EXPECT_EQ(run.losses(), train(base()).losses());
  const fs::path usual = fs::path(corpus(0)) / "cache" / "GPTDataset_indices";
  fs::remove_all(usual);
  EXPECT_EQ(train(base().without("--data-cache-path")).losses(), run.losses());
  EXPECT_EQ(index_files(usual), 3U);
  fs::remove_all(corpus(0));
}

TEST(Options, TokenizerType) {
  EXPECT_EQ(count(train(base()).program.out, " > padded vocab (size: 64) with 0 dummy tokens"), 1U);
  const fs::path bpe = make_bpe(270);
  EXPECT_EQ(count(train(with_bpe(base(), bpe)).program.out,
                  " > padded vocab (size: 270) with 2 dummy tokens (new size: 272)"),
            1U);
  const TinyRun planned = try_train(base().with("--tokenizer-type", "Llama2Tokenizer"));
  EXPECT_NE(planned.program.exit_code, 0);
  EXPECT_NE(planned.program.err.find("Llama2Tokenizer"), std::string::npos)
      << planned.program.describe();
}

TEST(Options, TokenizerFiles) {
  const fs::path small = make_bpe(262);
  const fs::path large = make_bpe(270);
  EXPECT_EQ(count(train(with_bpe(base(), small)).program.out, "(size: 262)"), 1U);
  EXPECT_EQ(count(train(with_bpe(base(), large)).program.out, "(size: 270)"), 1U);
  for (const char* option : {"--vocab-file", "--merge-file"}) {
    const std::string missing = (small / "nothing_here").string();
    const TinyRun run = try_train(with_bpe(base(), small).with(option, missing));
    expect_refusal(run.program, 4, {missing});
  }
}

TEST(Options, NullTokenizerIds) {
  const Options masked = base().with("--eod-mask-loss");
  const std::vector<double> usual = train(masked).series("train", "valid_tokens");
  EXPECT_EQ(train(masked.with("--null-tokenizer-eod-id", 63)).series("train", "valid_tokens"),
            usual);
  EXPECT_NE(train(masked.with("--null-tokenizer-eod-id", 5)).series("train", "valid_tokens"),
            usual);
  // The padding token is part of the tokenizer's identity: an index of its own, another run.
  const auto caches = [](const Options& options) {
    const fs::path cache = new_folder();
    const TinyRun run = train(options.with("--data-cache-path", cache.string()));
    return names_in(cache);
  };
  EXPECT_EQ(caches(base()), caches(base()));
  EXPECT_NE(caches(base().with("--null-tokenizer-pad-id", 7)), caches(base()));
}

TEST(Options, MockData) {
  const Options mock =
      base().without("--data-path").without("--data-cache-path").with("--mock-data");
  const TinyRun run = train(mock);
  EXPECT_EQ(run.losses().size(), 3U);
  EXPECT_NE(run.losses(), train(base()).losses());
}

}  // namespace pentatron::functional
