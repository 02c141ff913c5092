// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/functional/tiny_run.h"
#include "tests/functional/trained_bpe.h"

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
  std::string text;
  for (int i = 0; i < 40; ++i) text += "the cat sat on the mat and the rat ran to the hat\n";
  return trained_bpe(text, tokens);
}

std::size_t index_files(const fs::path& folder) {
  const std::set<std::string> names = names_in(folder);
  return static_cast<std::size_t>(std::count_if(
      names.begin(), names.end(), [](const std::string& name) { return name.ends_with(".npy"); }));
}

}  // namespace

// Padding rows of the vocabulary are outside softmax, norm and counts, unless they are asked for as
// tokens: then curves, and the count at the start, are Megatron's.
TEST(Options, DataPath) {
  EXPECT_NE(train(base().with("--data-path", corpus(1))).first_loss(), train(base()).first_loss());
  const TinyRun missing = try_train(base().with("--data-path", corpus(0) + "_missing"));
  EXPECT_EQ(missing.program.exit_code, 4) << missing.program.describe();
}

TEST(Options, Blend) {
  const Options one = base();
  const TinyRun blend = train(one.with("--data-path", {"0.3", corpus(0), "0.7", corpus(1)}));
  EXPECT_NE(blend.losses(), train(one).losses());
  EXPECT_NE(blend.losses(), train(one.with("--data-path", corpus(1))).losses());
  EXPECT_EQ(train(one.with("--data-path", {"3", corpus(0), "7", corpus(1)})).losses(),
            blend.losses());
  EXPECT_NE(train(one.with("--data-path", {"0.7", corpus(0), "0.3", corpus(1)})).losses(),
            blend.losses());
  // By their sizes, and several corpora of one part.
  EXPECT_TRUE(try_train(one.with("--data-path", {corpus(0), corpus(1)})).program.ok());
  const Options parts = one.without("--split").without("--data-path").with("--eval-iters", 1);
  const TinyRun by_part = train(parts.with("--train-data-path", {"1", corpus(0), "2", corpus(1)})
                                    .with("--valid-data-path", {corpus(0), corpus(1)}));
  EXPECT_EQ(by_part.series("validation", "lm_loss").size(), 1U);
  expect_refusal(try_train(one.with("--data-path", {"1", corpus(0), "x", corpus(1)})).program, 2,
                 {"--data-path", "numbers"});
}

TEST(Options, BlendFiles) {
  const fs::path folder = new_folder();
  const Options one = base().without("--data-path");
  write_file(folder / "list", "0.3 " + corpus(0) + "\n0.7 " + corpus(1) + "\n");
  const TinyRun listed = train(one.with("--data-args-path", (folder / "list").string()));
  EXPECT_EQ(listed.losses(),
            train(base().with("--data-path", {"0.3", corpus(0), "0.7", corpus(1)})).losses());
  write_file(folder / "parts",
             R"({"train": ["1", ")" + corpus(0) + R"(", "2", ")" + corpus(1) + R"("]})");
  const TinyRun parts =
      train(one.without("--split").with("--per-split-data-args-path", (folder / "parts").string()));
  EXPECT_EQ(parts.losses(), train(one.without("--split").with("--train-data-path",
                                                              {"1", corpus(0), "2", corpus(1)}))
                                .losses());
  // More samples of each member are more epochs, and another order.
  EXPECT_NE(train(one.with("--data-args-path", (folder / "list").string())
                      .with("--mid-level-dataset-surplus", "40"))
                .losses(),
            listed.losses());
  expect_refusal(try_train(base().with("--data-args-path", (folder / "list").string())).program, 2,
                 {"exclude each other"});
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
  const TinyRun planned = try_train(base().with("--tokenizer-type", "SFTTokenizer"));
  EXPECT_NE(planned.program.exit_code, 0);
  EXPECT_NE(planned.program.err.find("SFTTokenizer"), std::string::npos)
      << planned.program.describe();
}

namespace {

// A vocabulary with the two merges "th" and "he", the same with the other merge first, and the same
// with the ids of the two tokens exchanged.
struct ThreeVocabularies {
  fs::path vocab, merges, merges_turned, vocab_exchanged;
};

ThreeVocabularies three_vocabularies() {
  const fs::path folder = new_folder();
  std::string text;
  for (int i = 0; i < 20; ++i) text += "th\nhe\n";
  write_file(folder / "text.txt", text);
  const ProgramResult made = call({"train_tokenizer", "--input", folder / "text.txt",
                                   "--vocab-size", "259", "--output", folder});
  EXPECT_TRUE(made.ok()) << made.describe();
  write_file(folder / "merges.txt", "#version: 0.2\nt h\nh e\n");
  write_file(folder / "turned.txt", "#version: 0.2\nh e\nt h\n");
  nlohmann::json vocab = nlohmann::json::parse(read_file(folder / "vocab.json"));
  EXPECT_TRUE(vocab.contains("th") && vocab.contains("he"));
  std::swap(vocab["th"], vocab["he"]);
  write_file(folder / "exchanged.json", vocab.dump());
  return {folder / "vocab.json", folder / "merges.txt", folder / "turned.txt",
          folder / "exchanged.json"};
}

// The ids of "the", as preprocess_data writes them.
std::vector<int> ids_of_the(const fs::path& vocab, const fs::path& merges) {
  const fs::path folder = new_folder();
  write_file(folder / "in.jsonl", "{\"text\": \"the\"}\n");
  const ProgramResult made =
      call({"preprocess_data", "--input", folder / "in.jsonl", "--output-prefix", folder / "out",
            "--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", vocab, "--merge-file", merges});
  EXPECT_TRUE(made.ok()) << made.describe();
  const std::string bin = read_file(folder / "out_text_document.bin");
  std::vector<int> ids;
  for (std::size_t i = 0; i + 1 < bin.size(); i += 2) {
    ids.push_back(static_cast<unsigned char>(bin[i]) +
                  256 * static_cast<unsigned char>(bin[i + 1]));
  }
  return ids;
}

// What a training run notes of the tokenizer that it used.
std::string tokenizer_of_run(const fs::path& vocab, const fs::path& merges) {
  const fs::path folder = new_folder();
  const TinyRun run = train(saving(base()
                                       .without("--vocab-size")
                                       .with("--tokenizer-type", "GPT2BPETokenizer")
                                       .with("--vocab-file", vocab.string())
                                       .with("--merge-file", merges.string())
                                       .with("--train-iters", 1),
                                   folder));
  const std::string hash = manifest(folder, 1).at("train_state").at("tokenizer");
  // generate reads the same files, and refuses all others.
  const ProgramResult text =
      call({"generate", "--load", folder, "--prompt", "the", "--max-new-tokens", "1"});
  EXPECT_TRUE(text.ok()) << text.describe();
  return hash;
}

}  // namespace

TEST(Options, TokenizerFiles) {
  const ThreeVocabularies files = three_vocabularies();
  const nlohmann::json id = nlohmann::json::parse(read_file(files.vocab));
  const std::vector<int> first{id["th"], id["e"]};
  const std::vector<int> turned{id["t"], id["he"]};
  const std::vector<int> exchanged{id["he"], id["e"]};
  EXPECT_EQ(ids_of_the(files.vocab, files.merges), first);
  EXPECT_EQ(ids_of_the(files.vocab, files.merges_turned), turned);
  EXPECT_EQ(ids_of_the(files.vocab_exchanged, files.merges), exchanged);
  const std::set<std::string> hashes = {tokenizer_of_run(files.vocab, files.merges),
                                        tokenizer_of_run(files.vocab, files.merges_turned),
                                        tokenizer_of_run(files.vocab_exchanged, files.merges)};
  EXPECT_EQ(hashes.size(), 3U);
  for (const char* option : {"--vocab-file", "--merge-file"}) {
    const std::string missing = (files.vocab.parent_path() / "nothing_here").string();
    const TinyRun run = try_train(base()
                                      .without("--vocab-size")
                                      .with("--tokenizer-type", "GPT2BPETokenizer")
                                      .with("--vocab-file", files.vocab.string())
                                      .with("--merge-file", files.merges.string())
                                      .with(option, missing));
    expect_refusal(run.program, 4, {missing});
  }
}

// The step's wait for samples, in the metrics: without reading threads all of the reading, which is
// a part of the step.
TEST(DataLoading, StepsTellTheirWait) {
  const TinyRun run = train(base().with("--num-workers", 0));
  const std::vector<double> waits = run.series("train", "data_wait_seconds");
  const std::vector<double> steps = run.series("train", "seconds");
  ASSERT_EQ(waits.size(), 3U);
  for (std::size_t i = 0; i < waits.size(); ++i) {
    EXPECT_GT(waits[i], 0) << i;
    EXPECT_LT(waits[i], steps.at(i)) << i;
  }
  for (const double wait : train(base()).series("train", "data_wait_seconds")) EXPECT_GE(wait, 0);
}

// What a reading thread meets stops the step that needs it, with file, sequence and document.
TEST(DataLoading, ErrorsOfReadersNameFileAndDocument) {
  for (const int workers : {0, 2}) {
    const TinyRun run = try_train(base().with("--vocab-size", 31).with("--num-workers", workers));
    expect_refusal(run.program, 3, {corpus(0), "sequence", "document", "holds token"});
  }
}

TEST(Options, NumWorkers) {
  const auto readers_seen = [](int asked) {
    std::size_t most = 0;
    const TinyRun run = try_train(base().with("--train-iters", 40).with("--num-workers", asked),
                                  {.observe = [&most](const RunningProgram& program) {
                                    most =
                                        std::max(most, threads_named(program.pid, "data_loader"));
                                  }});
    EXPECT_TRUE(run.program.ok()) << run.program.describe();
    EXPECT_EQ(run.losses(), train(base().with("--train-iters", 40)).losses());
    return most;
  };
  EXPECT_EQ(readers_seen(0), 0U);
  EXPECT_EQ(readers_seen(1), 1U);
  EXPECT_EQ(readers_seen(4), 4U);
}

TEST(Options, MmapBinFiles) {
  struct Seen {
    bool mapped = false;
    bool open = false;
  };
  const std::string bin = fs::canonical(corpus(0) + ".bin").string();
  const auto how_read = [&bin](const Options& options) {
    Seen seen;
    const TinyRun run = try_train(
        options.with("--train-iters", 40), {.observe = [&](const RunningProgram& program) {
          const fs::path process = fs::path("/proc") / std::to_string(program.pid);
          seen.mapped = seen.mapped || count(read_file(process / "maps"), bin) > 0;
          std::error_code code;
          for (fs::directory_iterator it(process / "fd", code), end; !code && it != end;
               it.increment(code)) {
            std::error_code gone;
            seen.open = seen.open || fs::read_symlink(it->path(), gone) == bin;
          }
        }});
    EXPECT_TRUE(run.program.ok()) << run.program.describe();
    return seen;
  };
  EXPECT_TRUE(how_read(base()).mapped);
  const Seen plain = how_read(base().with("--no-mmap-bin-files"));
  EXPECT_FALSE(plain.mapped);
  EXPECT_TRUE(plain.open);
}

// Changes between the sampled blocks of a .bin are seen where every byte is read.
TEST(Options, DataContentHash) {
  const fs::path folder = new_folder();
  const std::string prefix = (folder / "large").string();
  write_file(folder / "in.jsonl", [] {
    std::string line = "{\"text\": \"";
    for (int i = 0; i < 1 << 20; ++i) line += fmt::format("{} ", i % 63);
    return line + "\"}\n" + line + "\"}\n";
  }());
  ASSERT_TRUE(call({"preprocess_data", "--input", (folder / "in.jsonl").string(), "--output-prefix",
                    prefix, "--tokenizer-type", "NullTokenizer", "--vocab-size", "63"})
                  .ok());
  const Options sampled = base()
                              .with("--data-path", prefix + "_text_document")
                              .with("--data-cache-path", (folder / "cache").string())
                              .with("--train-iters", 4);
  const Options whole = sampled.with("--data-content-hash", "whole");
  (void)train(saving(sampled.with("--exit-interval", 2), folder / "sampled"));
  (void)train(saving(whole.with("--exit-interval", 2), folder / "whole"));
  std::string bytes = read_file(prefix + "_text_document.bin");
  ASSERT_GT(bytes.size(), std::size_t{1} << 21);
  bytes[6000] ^= 1;  // between the first two blocks
  write_file(prefix + "_text_document.bin", bytes);
  EXPECT_TRUE(try_train(resuming(sampled, folder / "sampled")).program.ok());
  expect_refusal(try_train(resuming(whole, folder / "whole")).program, 7, {"other tokens"});
  expect_refusal(try_train(base().with("--data-content-hash", "all")).program, 2,
                 {"--data-content-hash", "all"});
}

TEST(Options, NullTokenizerIds) {
  const Options masked = base().with("--eod-mask-loss");
  const std::vector<double> usual = train(masked).series("train", "valid_tokens");
  EXPECT_EQ(train(masked.with("--null-tokenizer-eod-id", 63)).series("train", "valid_tokens"),
            usual);
  EXPECT_NE(train(masked.with("--null-tokenizer-eod-id", 5)).series("train", "valid_tokens"),
            usual);
  // A padding token is not predicted (N1), unless it is the end token, too (N2).
  const auto valid = [](const Options& options) {
    double sum = 0;
    for (const double tokens : train(options).series("train", "valid_tokens")) sum += tokens;
    return sum;
  };
  EXPECT_EQ(valid(base()), 3 * 64);
  EXPECT_LT(valid(base().with("--null-tokenizer-pad-id", 7)), 3 * 64);
  EXPECT_NE(train(base().with("--null-tokenizer-pad-id", 7)).losses(), train(base()).losses());
  const Options same = base().with("--null-tokenizer-pad-id", 63);
  EXPECT_EQ(valid(same), 3 * 64);
  EXPECT_EQ(count(train(same).program.err, "the padding token 63 is the end token, too"), 1U);
  // The padding token is part of the tokenizer's identity: an index of its own, another run.
  const auto caches = [](const Options& options) {
    const fs::path cache = new_folder();
    const TinyRun run = train(options.with("--data-cache-path", cache.string()));
    return names_in(cache);
  };
  EXPECT_EQ(caches(base()), caches(base()));
  EXPECT_NE(caches(base().with("--null-tokenizer-pad-id", 7)), caches(base()));
}

TEST(Options, AllowAmbiguousPadTokens) {
  const Options same = base().with("--null-tokenizer-pad-id", 63);
  const TinyRun counted = train(same);
  const TinyRun left_out = train(same.with("--allow-ambiguous-pad-tokens"));
  const auto valid = [](const TinyRun& run) {
    double sum = 0;
    for (const double tokens : run.series("train", "valid_tokens")) sum += tokens;
    return sum;
  };
  EXPECT_EQ(valid(counted), 3 * 64);
  EXPECT_LT(valid(left_out), 3 * 64);
  EXPECT_NE(left_out.losses(), counted.losses());
  EXPECT_NE(left_out.program.err.find("the model will not learn to end"), std::string::npos);
  const TinyRun unique =
      train(base().with("--null-tokenizer-pad-id", 7).with("--allow-ambiguous-pad-tokens"));
  EXPECT_NE(unique.program.err.find("changes nothing"), std::string::npos);
  EXPECT_EQ(unique.losses(), train(base().with("--null-tokenizer-pad-id", 7)).losses());
}

TEST(Options, MockData) {
  const Options mock =
      base().without("--data-path").without("--data-cache-path").with("--mock-data");
  const TinyRun run = train(mock);
  EXPECT_EQ(run.losses().size(), 3U);
  EXPECT_NE(run.losses(), train(base()).losses());
}

// Another order of the same samples, whatever the layout; a run that resumes with another loader is
// refused.
TEST(Options, DataloaderType) {
  const Options single = base().with("--train-iters", 6).with("--eval-iters", 1);
  const Options cyclic = single.with("--dataloader-type", "cyclic");
  const fs::path folder = new_folder();
  const TinyRun shuffled = train(saving(cyclic, folder, 3));
  EXPECT_NE(shuffled.losses(), train(single).losses());
  EXPECT_EQ(train(single.with("--dataloader-type", "single")).losses(), train(single).losses());
  expect_same_losses(train(cyclic.with("--micro-batch-size", 4).with("--num-workers", 2)), shuffled,
                     1e-6);
  const Options rest = cyclic.with("--load", folder.string()).with("--ckpt-step", 3);
  const std::vector<double> after = train(rest).losses();
  const std::vector<double> all = shuffled.losses();
  EXPECT_EQ(after, std::vector<double>(all.begin() + 3, all.end()));
  expect_refusal(try_train(rest.with("--dataloader-type", "single")).program, 7, {"another order"});
  expect_refusal(try_train(rest.with("--train-iters", 30)
                               .with("--append-epochs")
                               .with("--override-opt_param-scheduler"))
                     .program,
                 2, {"--dataloader-type cyclic", "--append-epochs"});
}

// Borders by the index. The corpus's documents end with the EOD token, so its tokens tell the same
// borders: the losses are those of both --reset options. Without EOD tokens only the index knows.
TEST(Options, InterDocumentMasking) {
  const Options documents = base().with("--dataloader-inter-document-masking");
  const Options tokens = base().with("--reset-attention-mask").with("--reset-position-ids");
  EXPECT_EQ(train(documents).losses(), train(tokens).losses());
  EXPECT_NE(train(documents).first_loss(), train(base()).first_loss());
  const auto without_ends = [&](const Options& options) {
    return train(options.with("--null-tokenizer-eod-id", 62)).first_loss();
  };
  EXPECT_EQ(without_ends(documents), train(documents).first_loss());
  EXPECT_NE(without_ends(tokens), train(tokens).first_loss());
  const auto refused = [&](const Options& more, const std::string& part) {
    expect_refusal(try_train(more).program, 2, {"--dataloader-inter-document-masking", part});
  };
  refused(documents.with("--reset-attention-mask"), "drop one");
  refused(documents.with("--reset-position-ids"), "drop --reset-position-ids");
  refused(documents.with("--fim-data"), "--fim-data");
}

TEST(Options, EodMaskLoss) {
  const TinyRun masked = train(base().with("--eod-mask-loss"));
  const std::vector<double> valid = masked.series("train", "valid_tokens");
  ASSERT_EQ(valid.size(), 3U);
  // Documents are 6 to 25 tokens long: four samples of 16 tokens hold some ends, never all ends.
  for (const double tokens : valid) {
    EXPECT_LT(tokens, 4 * 16);
    EXPECT_GT(tokens, 4 * 10);
  }
  EXPECT_NE(masked.first_loss(), train(base()).first_loss());
}

}  // namespace pentatron::functional
