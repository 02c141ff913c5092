// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/functional/tiny_run.h"

// preprocess_data end to end: each of its options, by the program itself.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;

// JSONL of documents of integers; more than one batch of lines for the workers.
fs::path number_lines(int documents) {
  const fs::path file = new_folder() / "numbers.jsonl";
  std::string text;
  for (int i = 0; i < documents; ++i) {
    text += R"({"text": ")";
    for (int k = 0; k < 5 + i % 23; ++k) text += std::to_string((i * 7 + k * 5) % 63) + " ";
    text += "\", \"id\": " + std::to_string(i) + "}\n";
  }
  write_file(file, text);
  return file;
}

std::vector<std::string> preprocess(const fs::path& input, const fs::path& prefix,
                                    std::vector<std::string> more = {}) {
  std::vector<std::string> words{"preprocess_data", "--input",       input.string(),
                                 "--output-prefix", prefix.string(), "--tokenizer-type",
                                 "NullTokenizer",   "--vocab-size",  "63"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string bin_of(const fs::path& prefix) { return read_file(prefix.string() + ".bin"); }

}  // namespace

TEST(Preprocess, AnyNumberOfWorkersGivesTheSameBytes) {
  const fs::path input = number_lines(6000);
  const fs::path folder = new_folder();
  const ProgramResult one = call(preprocess(input, folder / "one", {"--append-eod"}));
  EXPECT_TRUE(one.ok()) << one.describe();
  EXPECT_EQ(count(one.out, "6000 documents"), 1U) << one.out;
  const ProgramResult three =
      call(preprocess(input, folder / "three", {"--append-eod", "--workers", "3"}));
  EXPECT_TRUE(three.ok()) << three.describe();
  for (const std::string extension : {".bin", ".idx"}) {
    const std::string bytes = read_file(folder / ("one_text_document" + extension));
    EXPECT_FALSE(bytes.empty());
    EXPECT_EQ(read_file(folder / ("three_text_document" + extension)), bytes) << extension;
  }
  const ProgramResult seen = call({"inspect_dataset", (folder / "one_text_document").string()});
  EXPECT_EQ(count(seen.out, "documents: 6000 (0 empty)"), 1U) << seen.describe();
  EXPECT_EQ(count(seen.out, "first tokens: 0 5 10 15 20 63 7 12"), 1U) << seen.out;
}

TEST(Preprocess, EndOfDocumentOnlyWhenAsked) {
  const fs::path input = number_lines(10);
  const fs::path folder = new_folder();
  EXPECT_TRUE(call(preprocess(input, folder / "plain")).ok());
  const ProgramResult seen = call({"inspect_dataset", (folder / "plain_text_document").string()});
  EXPECT_EQ(count(seen.out, "first tokens: 0 5 10 15 20 7 12"), 1U) << seen.describe();
}

TEST(Preprocess, KeepsExistingOutputUnlessForced) {
  const fs::path folder = new_folder();
  const fs::path bin = folder / "out_text_document.bin";
  EXPECT_TRUE(call(preprocess(number_lines(10), folder / "out")).ok());
  const std::string before = read_file(bin);
  const fs::path more = number_lines(20);
  expect_refusal(call(preprocess(more, folder / "out")), 2, {bin.string(), "--force"});
  EXPECT_EQ(read_file(bin), before);
  EXPECT_TRUE(call(preprocess(more, folder / "out", {"--force"})).ok());
  EXPECT_GT(read_file(bin).size(), before.size());
}

TEST(Preprocess, BadLinesStopOrAreCounted) {
  const fs::path folder = new_folder();
  const fs::path input = folder / "bad.jsonl";
  write_file(input,
             "{\"text\": \"1 2 3\"}\n{\"text\": \"4 5\n{\"other\": \"6\"}\n{\"text\": \"7 99\"}\n");
  expect_refusal(call(preprocess(input, folder / "out")), 3, {input.string() + ":2:"});
  EXPECT_FALSE(fs::exists(folder / "out_text_document.bin"));
  EXPECT_FALSE(fs::exists(folder / "out_text_document.idx"));
  const ProgramResult skipping = call(preprocess(input, folder / "out", {"--skip-bad-lines"}));
  EXPECT_TRUE(skipping.ok()) << skipping.describe();
  EXPECT_EQ(count(skipping.out, "1 documents, 3 tokens"), 1U) << skipping.out;
  EXPECT_EQ(count(skipping.err, "3 of 4 lines were skipped as bad"), 1U) << skipping.err;
  EXPECT_EQ(count(skipping.err, "; line skipped"), 3U) << skipping.err;
  const ProgramResult same = call(preprocess(input, folder / "same", {"--on-bad-line", "skip"}));
  EXPECT_TRUE(same.ok()) << same.describe();
  EXPECT_EQ(read_file(folder / "same_text_document.bin"),
            read_file(folder / "out_text_document.bin"));
  expect_refusal(
      call(preprocess(input, folder / "x", {"--skip-bad-lines", "--on-bad-line", "stop"})), 2,
      {"--skip-bad-lines", "--on-bad-line is stop"});
  expect_refusal(call(preprocess(input, folder / "x", {"--on-bad-line", "drop"})), 2,
                 {"stop, skip or report", "'drop'"});
}

TEST(Preprocess, SeveralKeysGiveSeveralCorpora) {
  const fs::path folder = new_folder();
  write_file(folder / "two.jsonl",
             "{\"a\": \"1 2 3\", \"b\": \"4\"}\n{\"a\": \"5\", \"b\": \"6 7\"}\n");
  const ProgramResult made =
      call(preprocess(folder / "two.jsonl", folder / "out", {"--json-keys", "a", "b"}));
  EXPECT_TRUE(made.ok()) << made.describe();
  const ProgramResult a = call({"inspect_dataset", (folder / "out_a_document").string()});
  EXPECT_EQ(count(a.out, "first tokens: 1 2 3 5"), 1U) << a.describe();
  const ProgramResult b = call({"inspect_dataset", (folder / "out_b_document").string()});
  EXPECT_EQ(count(b.out, "first tokens: 4 6 7"), 1U) << b.describe();
}

TEST(Preprocess, TrainsOnWhatItWrote) {
  const fs::path folder = new_folder();
  EXPECT_TRUE(call(preprocess(number_lines(60), folder / "out", {"--append-eod"})).ok());
  const TinyRun run = train(base().with("--data-path", (folder / "out_text_document").string()));
  EXPECT_EQ(run.losses().size(), 3U);
}

TEST(Preprocess, StandardInputFoldersAndPatterns) {
  const fs::path folder = new_folder();
  fs::create_directories(folder / "in");
  fs::copy_file(number_lines(40), folder / "in" / "a.jsonl");
  fs::copy_file(number_lines(10), folder / "in" / "b.json");
  EXPECT_TRUE(call(preprocess(folder / "in", folder / "folder")).ok());
  EXPECT_TRUE(call(preprocess(folder / "in" / "*", folder / "pattern")).ok());
  EXPECT_TRUE(call(preprocess(folder / "in" / "a.jsonl", folder / "two",
                              {"--input", (folder / "in" / "b.json").string()}))
                  .ok());
  const char* const program = std::getenv("PENTATRON_BIN");
  ASSERT_NE(program, nullptr);
  const std::string piped =
      "cat '" + (folder / "in" / "a.jsonl").string() + "' '" + (folder / "in" / "b.json").string() +
      "' | gzip | '" + program + "' preprocess_data --input - --output-prefix '" +
      (folder / "piped").string() + "' --tokenizer-type NullTokenizer --vocab-size 63 2>/dev/null";
  ASSERT_EQ(std::system(piped.c_str()), 0);
  const std::string bytes = bin_of(folder / "folder_text_document");
  EXPECT_FALSE(bytes.empty());
  for (const char* const name : {"pattern", "two", "piped"}) {
    EXPECT_EQ(bin_of(folder / (std::string(name) + "_text_document")), bytes) << name;
  }
  expect_refusal(call(preprocess(folder / "*.nothing", folder / "x")), 2, {"no file has such"});
}

TEST(Preprocess, InputThatIsSomethingElseIsNamed) {
  const fs::path folder = new_folder();
  write_file(folder / "wide.jsonl", std::string("\xff\xfe{\0\"\0", 6));
  expect_refusal(call(preprocess(folder / "wide.jsonl", folder / "x")), 3,
                 {"wide.jsonl is UTF-16 text", "iconv"});
  write_file(folder / "cut.jsonl.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\3", 10));
  expect_refusal(call(preprocess(folder / "cut.jsonl.gz", folder / "x")), 3,
                 {"cut.jsonl.gz: no whole gzip file", "ends early"});
  write_file(folder / "a.txt", "1 2\n3\n");
  expect_refusal(call(preprocess(folder / "a.txt", folder / "x")), 2, {"--txt-documents line"});
  const ProgramResult lines =
      call(preprocess(folder / "a.txt", folder / "lines", {"--txt-documents", "line"}));
  EXPECT_EQ(count(lines.out, "2 documents, 3 tokens"), 1U) << lines.describe();
  expect_refusal(call(preprocess(folder / "b.jsonl", folder / "x", {"--max-line-mb", "5000"})), 2,
                 {"--max-line-mb 5000"});
  write_file(folder / "long.jsonl", "{\"text\": \"" + std::string(1 << 20, '1') + "\"}\n");
  expect_refusal(call(preprocess(folder / "long.jsonl", folder / "x", {"--max-line-mb", "1"})), 3,
                 {"long.jsonl:1:1: longer than 1048576 bytes"});
}

TEST(Preprocess, SentencesAndTheirOptions) {
  const fs::path folder = new_folder();
  write_file(folder / "s.jsonl", "{\"text\": \"1 2 . 3 4 . \\n 5\"}\n");
  // The marks are no tokens of the NullTokenizer: sentences show in what it refuses.
  expect_refusal(call(preprocess(folder / "s.jsonl", folder / "x", {"--split-sentences"})), 3,
                 {"s.jsonl:1:"});
  write_file(folder / "n.jsonl", "{\"text\": \"1 2\"}\n");
  const ProgramResult made =
      call(preprocess(folder / "n.jsonl", folder / "out",
                      {"--split-sentences", "--lang", "english", "--keep-newlines"}));
  EXPECT_TRUE(made.ok()) << made.describe();
  EXPECT_TRUE(fs::exists(folder / "out_text_sentence.idx"));
  expect_refusal(
      call(preprocess(folder / "n.jsonl", folder / "x", {"--split-sentences", "--lang", "german"})),
      8, {"--lang german", "english only"});
  expect_refusal(call(preprocess(folder / "n.jsonl", folder / "x", {"--lang", "english"})), 2,
                 {"--lang has no effect without --split-sentences"});
  expect_refusal(call(preprocess(folder / "n.jsonl", folder / "x", {"--keep-newlines"})), 2,
                 {"--keep-newlines has no effect"});
}

TEST(Preprocess, PartitionsAndOlderSpellings) {
  const fs::path folder = new_folder();
  const fs::path input = number_lines(30);
  EXPECT_TRUE(call(preprocess(input, folder / "one")).ok());
  EXPECT_TRUE(call(preprocess(input, folder / "four",
                              {"--workers", "4", "--partitions", "2", "--keep-sequential-samples",
                               "--dataset-impl", "mmap", "--log-interval", "10"}))
                  .ok());
  EXPECT_EQ(bin_of(folder / "one_text_document"), bin_of(folder / "four_text_document"));
  expect_refusal(call(preprocess(input, folder / "x", {"--partitions", "2"})), 2,
                 {"--partitions 2 must divide --workers 1"});
  expect_refusal(call(preprocess(input, folder / "x", {"--dataset-impl", "lazy"})), 2,
                 {"must be mmap, got 'lazy'"});
}

// Of Megatron's tokenizer group, what decides about texts does, and the rest changes nothing.
TEST(Preprocess, TheTokenizerGroup) {
  const fs::path folder = new_folder();
  const fs::path input = number_lines(3);
  const auto made = [&](const std::string& name, const std::vector<std::string>& more) {
    const ProgramResult result = call(preprocess(input, folder / name, more));
    EXPECT_TRUE(result.ok()) << result.describe();
    return bin_of(folder / (name + "_text_document"));
  };
  const std::string usual = made("usual", {"--append-eod"});
  EXPECT_EQ(
      made("idle", {"--append-eod", "--null-tokenizer-pad-id", "1", "--padded-vocab-size", "128",
                    "--make-vocab-size-divisible-by", "8", "--no-pad-vocab-size", "--chat-template",
                    "none.jinja", "--tokenizer-hf-no-use-fast", "--use-gigatoken"}),
      usual);
  const std::string other = made("other", {"--append-eod", "--null-tokenizer-eod-id", "5"});
  ASSERT_EQ(other.size(), usual.size());
  EXPECT_EQ(other[other.size() - 2], 5);
  EXPECT_NE(usual[usual.size() - 2], 5);
  expect_refusal(call(preprocess(input, folder / "x", {"--null-tokenizer-eod-id", "99"})), 2,
                 {"99"});
  expect_refusal(call(preprocess(input, folder / "x", {"--trust-remote-code"})), 2,
                 {"--trust-remote-code", "no code is ever run"});
}

TEST(Preprocess, FindsTheNumberOfWorkers) {
  const fs::path folder = new_folder();
  const fs::path input = number_lines(3000);
  const ProgramResult found = call(preprocess(
      input, folder / "x",
      {"--find-optimal-num-workers", "--workers-to-check", "1", "2", "--max-documents", "1000"}));
  EXPECT_TRUE(found.ok()) << found.describe();
  EXPECT_EQ(count(found.out, "1 workers: "), 1U) << found.out;
  EXPECT_EQ(count(found.out, "2 workers: "), 1U) << found.out;
  EXPECT_EQ(count(found.out, "fastest: --workers "), 1U) << found.out;
  EXPECT_TRUE(fs::is_empty(folder));
  expect_refusal(call(preprocess(input, folder / "x", {"--max-documents", "5"})), 2,
                 {"no effect without --find-optimal-num-workers"});
  expect_refusal(call(preprocess(input, folder / "x",
                                 {"--find-optimal-num-workers", "--workers-to-check", "two"})),
                 2, {"--workers-to-check", "'two'"});
}

// A bad line ends the run after minutes; what was done is kept, and goes on without the line.
TEST(Preprocess, AnUnfinishedRunGoesOn) {
  const fs::path folder = new_folder();
  const fs::path input = folder / "numbers.jsonl";
  write_file(input, read_file(number_lines(20000)) + "nonsense\n" + read_file(number_lines(5000)));
  expect_refusal(call(preprocess(input, folder / "out", {"--resume"})), 3,
                 {"numbers.jsonl:20001:1: not one JSON object"});
  EXPECT_FALSE(fs::exists(folder / "out_text_document.bin"));
  EXPECT_TRUE(fs::exists(folder / "out.partial" / "state.json"));
  expect_refusal(call(preprocess(input, folder / "out", {"--resume", "--append-eod"})), 2,
                 {"out.partial holds an unfinished run of other options"});
  const ProgramResult rest =
      call(preprocess(input, folder / "out", {"--resume", "--on-bad-line", "skip"}));
  EXPECT_TRUE(rest.ok()) << rest.describe();
  EXPECT_EQ(count(rest.err, "going on at " + input.string() + ":"), 1U) << rest.err;
  EXPECT_EQ(count(rest.out, "25000 documents"), 1U) << rest.out;
  EXPECT_FALSE(fs::exists(folder / "out.partial"));
  const ProgramResult whole =
      call(preprocess(input, folder / "whole", {"--on-bad-line", "report"}));
  EXPECT_TRUE(whole.ok()) << whole.describe();
  for (const std::string extension : {".bin", ".idx"}) {
    EXPECT_EQ(read_file(folder / ("out_text_document" + extension)),
              read_file(folder / ("whole_text_document" + extension)));
  }
}

}  // namespace pentatron::functional
