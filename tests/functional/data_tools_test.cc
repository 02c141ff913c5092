// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/functional/tiny_run.h"

// The programs around corpora, end to end: merge_datasets, inspect_dataset, prepare_cache,
// build_sequences_per_dataset.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;

// A corpus of the documents, each a list of integers, as PREFIX.
fs::path corpus_of(const fs::path& prefix, const std::vector<std::string>& documents) {
  const fs::path file = new_folder() / "text.jsonl";
  std::string text;
  for (const std::string& document : documents) text += "{\"text\": \"" + document + "\"}\n";
  write_file(file, text);
  const ProgramResult made =
      call({"preprocess_data", "--input", file.string(), "--output-prefix", prefix.string(),
            "--tokenizer-type", "NullTokenizer", "--vocab-size", "63", "--append-eod"});
  EXPECT_TRUE(made.ok()) << made.describe();
  return prefix.string() + "_text_document";
}

std::string both_files(const fs::path& prefix) {
  return read_file(prefix.string() + ".bin") + read_file(prefix.string() + ".idx");
}

}  // namespace

TEST(MergeDatasets, FoldersAndPrefixesGiveTheWhole) {
  const fs::path folder = new_folder();
  const fs::path parts = folder / "parts";
  fs::create_directory(parts);
  const fs::path b = corpus_of(parts / "b", {"4 5", "6"});
  const fs::path a = corpus_of(parts / "a", {"1 2 3"});
  const fs::path all = corpus_of(folder / "all", {"1 2 3", "4 5", "6"});
  const fs::path merged = folder / "merged";
  const ProgramResult made =
      call({"merge_datasets", "--input", parts.string(), "--output-prefix", merged.string()});
  EXPECT_TRUE(made.ok()) << made.describe();
  EXPECT_EQ(count(made.out, "2 corpora, 3 documents, 3 sequences, 9 tokens"), 1U) << made.out;
  EXPECT_EQ(both_files(merged), both_files(all));
  expect_refusal(
      call({"merge_datasets", "--input", parts.string(), "--output-prefix", merged.string()}), 2,
      {"exists already", "--force"});
  EXPECT_TRUE(call({"merge_datasets", "--input", b.string(), a.string() + ".idx", "--output-prefix",
                    merged.string(), "--force"})
                  .ok());
  EXPECT_EQ(read_file(merged.string() + ".bin").size(), read_file(all.string() + ".bin").size());
  EXPECT_NE(both_files(merged), both_files(all));
}

TEST(MergeDatasets, FullDiskLeavesNothing) {
  const fs::path folder = new_folder();
  const fs::path a = corpus_of(folder / "a", {"1 2 3"});
  for (const char* const fault :
       {"error:write:1", "error:write:2", "error:sync:1", "error:rename:1", "error:rename:2"}) {
    const ProgramResult full =
        run_program({.words = {"merge_datasets", "--input", a.string(), "--output-prefix",
                               (folder / "out" / "merged").string()},
                     .environment = {{"PENTATRON_FAULT_STOP_AT", fault}}});
    EXPECT_EQ(full.exit_code, 4) << fault << full.describe();
    EXPECT_FALSE(fs::exists(folder / "out" / "merged.idx")) << fault;
    EXPECT_FALSE(fs::exists(folder / "out" / "merged.bin")) << fault;
  }
}

TEST(InspectDataset, DocumentsAsTokensAndText) {
  const fs::path folder = new_folder();
  const fs::path prefix = corpus_of(folder / "c", {"1 2 3", "4 5 6 7 8 9", "7"});
  for (const char* const extension : {"", ".bin", ".idx"}) {
    const ProgramResult seen = call({"inspect_dataset", prefix.string() + extension});
    EXPECT_EQ(count(seen.out, "documents: 3 (0 empty)"), 1U) << seen.describe();
    EXPECT_EQ(count(seen.out, "documents by tokens:"), 1U) << seen.out;
    EXPECT_EQ(count(seen.out, "4-7           2   66.7 %  ####"), 1U) << seen.out;
  }
  const ProgramResult second = call({"inspect_dataset", prefix.string(), "--document", "1",
                                     "--tokenizer-type", "NullTokenizer", "--vocab-size", "63"});
  EXPECT_EQ(count(second.out,
                  "document 1: 7 tokens in 1 sequences\nsequence 1: 4 5 6 7 8 9 63\n"
                  "text:\n4 5 6 7 8 9 63\n"),
            1U)
      << second.describe();
  const ProgramResult cut =
      call({"inspect_dataset", prefix.string(), "--document", "1", "--max-tokens", "2"});
  EXPECT_EQ(count(cut.out, "sequence 1: 4 5\n(5 tokens more)"), 1U) << cut.describe();
  expect_refusal(call({"inspect_dataset", prefix.string(), "--document", "3"}), 2,
                 {"documents 0 to 2"});
  expect_refusal(call({"inspect_dataset", prefix.string(), "--document", "1", "--tokenizer-type",
                       "NullTokenizer", "--vocab-size", "8"}),
                 3, {"holds token 9", "another one"});
  expect_refusal(call({"inspect_dataset", prefix.string(), "--max-tokens", "3"}), 2,
                 {"--max-tokens has no effect"});
  fs::resize_file(prefix.string() + ".bin", 5);
  expect_refusal(call({"inspect_dataset", prefix.string()}), 3, {".idx", "5 bytes only"});
}

TEST(PrepareCache, TheRunFindsItsCaches) {
  const fs::path folder = new_folder();
  const Options options = base()
                              .with("--data-path", {"1", corpus(0), "2", corpus(1)})
                              .with("--eval-iters", 1)
                              .with("--data-cache-path", (folder / "cache").string());
  const ProgramResult first = call(options.words("prepare_cache"));
  EXPECT_TRUE(first.ok()) << first.describe();
  // Two corpora and their blend, of three parts.
  EXPECT_EQ(count(first.out, "  written: "), 9U) << first.out;
  EXPECT_EQ(count(first.out, "samples asked for: 12 for training"), 1U) << first.out;
  const auto written = [&] {
    std::map<std::string, fs::file_time_type> times;
    for (const auto& entry : fs::directory_iterator(folder / "cache")) {
      times[entry.path().filename().string()] = entry.last_write_time();
    }
    return times;
  };
  const auto before = written();
  const ProgramResult second = call(options.words("prepare_cache"));
  EXPECT_EQ(count(second.out, "  already whole: "), 9U) << second.describe();
  const TinyRun run = train(options);
  EXPECT_EQ(written(), before) << "the run made no others";
  EXPECT_EQ(run.losses().size(), 3U);
  // Four ranks of the default batch take four times the samples.
  const ProgramResult four = call(options.without("--global-batch-size")
                                      .with("--prepare-cache-world-size", 4)
                                      .words("prepare_cache"));
  EXPECT_EQ(count(four.out, "world size 4, data-parallel size 4, global batch size 8"), 1U)
      << four.describe();
  EXPECT_EQ(count(four.out, "samples asked for: 24 for training"), 1U) << four.out;
  expect_refusal(call(options.without("--data-path")
                          .without("--data-cache-path")
                          .with("--mock-data")
                          .words("prepare_cache")),
                 2, {"--mock-data has no index caches"});
}

TEST(BuildSequencesPerDataset, CountsEachCorpusOnce) {
  const fs::path folder = new_folder();
  const std::string a = corpus_of(folder / "a", {"1 2 3", "4"}).string();
  const std::string b = corpus_of(folder / "b", {"1"}).string();
  const fs::path file = folder / "counts.json";
  const ProgramResult made = call({"build_sequences_per_dataset", "--data-path", "1", a, "2", b,
                                   "3", a, "--per-dataset-sequences-path", file.string()});
  EXPECT_TRUE(made.ok()) << made.describe();
  EXPECT_EQ(read_file(file), "{\"" + a + "\": [2, 3], \"" + b + "\": [1, 2]}");
  write_file(folder / "parts.json", R"({"train": [")" + b + R"("], "valid": ")" + a + "\"}");
  EXPECT_TRUE(
      call({"build_sequences_per_dataset", "--per-split-data-args-path",
            (folder / "parts.json").string(), "--per-dataset-sequences-path", file.string()})
          .ok());
  EXPECT_EQ(read_file(file), "{\"" + b + "\": [1, 2], \"" + a + "\": [2, 3]}");
  expect_refusal(
      call({"build_sequences_per_dataset", "--per-dataset-sequences-path", file.string()}), 2,
      {"--data-path", "--per-split-data-args-path"});
}

}  // namespace pentatron::functional
