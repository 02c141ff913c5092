// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/functional/tiny_run.h"

// Vocabularies of train_tokenizer, of every kind, through preprocess_data and back to text.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

// A hundred lines about the same few things.
fs::path text_file() {
  const fs::path file = new_folder() / "text.txt";
  std::string text;
  for (int i = 0; i < 50; ++i) {
    text += "the old cat and the new cat sat on the mat " + std::to_string(i) + "\n";
    text += "a small dog ate what the cats had not eaten\n";
  }
  write_file(file, text);
  return file;
}

fs::path trained(const char* kind, const char* vocab_size, const Words& more = {}) {
  const fs::path folder = new_folder();
  Words words{"train_tokenizer", "--kind",   kind,       "--input",      text_file().string(),
              "--vocab-size",    vocab_size, "--output", folder.string()};
  words.insert(words.end(), more.begin(), more.end());
  const ProgramResult made = call(words);
  EXPECT_TRUE(made.ok()) << made.describe();
  return folder;
}

// The text that inspect_dataset shows of the one document of a corpus.
std::string text_after(const std::string& text, const Words& tokenizer,
                       std::string* bin = nullptr) {
  const fs::path folder = new_folder();
  write_file(folder / "in.jsonl", nlohmann::json{{"text", text}}.dump() + "\n");
  Words words{"preprocess_data", "--input", (folder / "in.jsonl").string(), "--output-prefix",
              (folder / "out").string()};
  words.insert(words.end(), tokenizer.begin(), tokenizer.end());
  const ProgramResult made = call(words);
  EXPECT_TRUE(made.ok()) << made.describe();
  const std::string prefix = (folder / "out").string() + "_text_document";
  if (bin != nullptr) *bin = read_file(prefix + ".bin");
  Words inspect{"inspect_dataset", prefix, "--document", "0"};
  inspect.insert(inspect.end(), tokenizer.begin(), tokenizer.end());
  const ProgramResult seen = call(inspect);
  EXPECT_TRUE(seen.ok()) << seen.describe();
  const std::size_t begin = seen.out.find("text:\n");
  EXPECT_NE(begin, std::string::npos) << seen.describe();
  std::string shown = seen.out.substr(begin + 6);
  while (shown.ends_with('\n')) shown.pop_back();
  return shown;
}

}  // namespace

TEST(TokenizerKinds, SentencePiece) {
  const std::string model = (trained("unigram", "295") / "tokenizer.model").string();
  std::string first;
  for (const char* type :
       {"SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer"}) {
    std::string bin;
    // Full-width letters and an ideographic space are others after the model's normalisation; what
    // has no piece is bytes.
    EXPECT_EQ(text_after("the \uFF43\uFF41\uFF54\u3000sat \u20ac",
                         {"--tokenizer-type", type, "--tokenizer-model", model}, &bin),
              "the cat sat \u20ac")
        << type;
    if (first.empty()) first = bin;
    EXPECT_EQ(bin, first) << type;
  }
}

// Both through preprocess_data: extra spaces are tokens, and special tokens are ids behind the
// model's.
TEST(Options, SentencePieceOptions) {
  const std::string model = (trained("unigram", "295") / "tokenizer.model").string();
  const Words plain{"--tokenizer-type", "SentencePieceTokenizer", "--tokenizer-model", model};
  const auto with = [&](const Words& more) {
    Words words = plain;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const auto bin_of = [&](const std::string& text, const Words& words) {
    std::string bin;
    (void)text_after(text, words, &bin);
    return bin;
  };
  const std::string text = "  the  cat ";
  EXPECT_EQ(bin_of(text, plain), bin_of("the cat", plain));
  const Words spaces = with({"--no-tokenizer-sentencepiece-ignore-extra-whitespaces"});
  EXPECT_GT(bin_of(text, spaces).size(), bin_of(text, plain).size());
  const Words legacy =
      with({"--tokenizer-sentencepiece-legacy", "--tokenizer-special-tokens", "<one>", "<two>"});
  EXPECT_EQ(text_after("the<two>cat", legacy), "the <two> cat");
  EXPECT_NE(bin_of("the<two>cat", legacy), bin_of("the<two>cat", plain));
  // And in training, where they make another vocabulary.
  const auto padded = [&](const Options& options) {
    const TinyRun run = train(options.with("--tokenizer-type", "SentencePieceTokenizer")
                                  .with("--tokenizer-model", model)
                                  .without("--vocab-size")
                                  .with("--train-iters", 1));
    const std::size_t at = run.program.out.find(" > padded vocab (size: ");
    EXPECT_NE(at, std::string::npos) << run.program.describe();
    return std::stoi(run.program.out.substr(at + 23));
  };
  EXPECT_EQ(padded(base()
                       .with("--tokenizer-sentencepiece-legacy")
                       .with("--tokenizer-special-tokens", Words{"<one>", "<two>"})),
            padded(base()) + 2);
  const TinyRun other = train(base().with("--tokenizer-sentencepiece-legacy"));
  EXPECT_NE(other.program.out.find("no effect here: --tokenizer-sentencepiece-legacy"),
            std::string::npos)
      << other.program.describe();
}

TEST(TokenizerKinds, WordPiece) {
  const std::string lower = (trained("wordpiece", "120") / "vocab.txt").string();
  EXPECT_EQ(text_after("The C\u00e1t sat",
                       {"--tokenizer-type", "BertWordPieceLowerCase", "--vocab-file", lower}),
            "[CLS] the cat sat [SEP]");
  const std::string cased = (trained("wordpiece", "120", {"--cased"}) / "vocab.txt").string();
  EXPECT_EQ(text_after("The cat", {"--tokenizer-type", "BertWordPieceCase", "--vocab-file", cased}),
            "[CLS] [UNK] cat [SEP]");
}

TEST(TokenizerKinds, BytesOfAnyText) {
  const fs::path folder = trained("bpe", "300");
  const std::string text = "the cat \u0301\u4e2d\U0001F642";
  EXPECT_EQ(text_after(text, {"--tokenizer-type", "GPT2BPETokenizer", "--vocab-file",
                              (folder / "vocab.json").string(), "--merge-file",
                              (folder / "merges.txt").string()}),
            text);
}

}  // namespace pentatron::functional
