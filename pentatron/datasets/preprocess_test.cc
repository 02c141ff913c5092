// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/preprocess.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/datasets/compress_test_support.h"
#include "pentatron/datasets/memory_test_support.h"
#include "pentatron/datasets/preprocess_test_support.h"
#include "pentatron/datasets/test_corpus.h"
#include "pentatron/tokenizers/null_tokenizer.h"

namespace pentatron::datasets {
namespace {

using testing::ByteTokenizer;
using testing::CorpusRun;
using testing::many_lines;
using Tokens = std::vector<std::int64_t>;

// AddressSanitizer keeps freed memory for a while, so its bound is a wide one.
#ifdef __SANITIZE_ADDRESS__
constexpr std::int64_t kMaxGrowth = 512LL << 20;
#else
constexpr std::int64_t kMaxGrowth = 64LL << 20;
#endif

TEST(Preprocess, WritesWhatTheLinesHold) {
  CorpusRun run("{\"text\": \"ab\"}\n{\"id\": 1, \"text\": \"c\\u00e9\\n\"}\r\n{\"text\":\"d\"}");
  const PreprocessStats stats = run.go();
  EXPECT_EQ(stats.lines, 3);
  EXPECT_EQ(stats.bytes, std::filesystem::file_size(run.input()));
  ASSERT_EQ(stats.keys.size(), 1U);
  EXPECT_EQ(stats.keys[0].output_prefix, run.prefix());
  EXPECT_EQ(stats.keys[0].documents, 3);
  EXPECT_EQ(stats.keys[0].tokens, 7);
  const IndexedDataset dataset(run.prefix());
  EXPECT_EQ(dataset.dtype(), TokenDtype::kUint16);
  EXPECT_EQ(testing::read_sequence(dataset, 0), (Tokens{'a', 'b'}));
  EXPECT_EQ(testing::read_sequence(dataset, 1), (Tokens{'c', 0xc3, 0xa9, '\n'}));
  EXPECT_EQ(testing::read_sequence(dataset, 2), Tokens{'d'});
  EXPECT_EQ(run.outputs(),
            (std::set<std::string>{"out_text_document.bin", "out_text_document.idx"}));
}

TEST(Preprocess, EachKeyIsACorpus) {
  CorpusRun run("{\"a\": \"x\", \"b\": [\"yz\", \"\", \"w\"]}\n{\"b\": \"q\", \"a\": \"rs\"}\n");
  run.options.json_keys = {"b", "a"};
  run.options.append_eod = true;
  const PreprocessStats stats = run.go();
  EXPECT_EQ(stats.keys[0].tokens, 6);
  const IndexedDataset b(run.prefix("b"));
  EXPECT_EQ(b.num_documents(), 2);
  EXPECT_EQ(b.document_range(0), std::pair(0L, 2L));
  EXPECT_EQ(testing::read_sequence(b, 0), (Tokens{'y', 'z'}));
  EXPECT_EQ(testing::read_sequence(b, 1), (Tokens{'w', 256}));
  EXPECT_EQ(testing::read_sequence(IndexedDataset(run.prefix("a")), 1), (Tokens{'r', 's', 256}));
}

TEST(Preprocess, WorkersChangeNothing) {
  const std::string text = many_lines(20000);
  std::set<std::string> bins;
  std::set<std::string> indices;
  for (const std::int64_t workers : {1, 2, 3, 7}) {
    CorpusRun run(text);
    run.options.workers = workers;
    run.options.append_eod = true;
    run.options.log_interval = 0;
    const PreprocessStats stats = run.go();
    EXPECT_EQ(stats.lines, 20000);
    EXPECT_EQ(stats.keys[0].empty_documents, 207);
    bins.insert(testing::md5_of_file(run.prefix() + ".bin"));
    indices.insert(testing::md5_of_file(run.prefix() + ".idx"));
  }
  EXPECT_EQ(bins.size(), 1U);
  EXPECT_EQ(indices.size(), 1U);
}

TEST(Preprocess, ProgressComesAtEveryInterval) {
  CorpusRun run(many_lines(2500));
  run.options.log_interval = 1000;
  std::vector<std::string> lines;
  run.options.on_progress = [&](std::string_view line) { lines.emplace_back(line); };
  (void)run.go();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(lines[0].starts_with("Processed 1000 documents (")) << lines[0];
  EXPECT_TRUE(lines[1].starts_with("Processed 2000 documents (")) << lines[1];
  EXPECT_NE(lines[1].find(" docs/s, "), std::string::npos);
  EXPECT_NE(lines[1].find(" MB/s). "), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find(" % of the input"), std::string::npos) << lines[1];
}

TEST(Preprocess, ExistingOutputStays) {
  CorpusRun run("{\"text\": \"ab\"}\n");
  (void)run.go();
  const std::string before = testing::md5_of_file(run.prefix() + ".bin");
  testing::write_text(run.input(), "{\"text\": \"cde\"}\n");
  EXPECT_NE(run.error(ErrorKind::kConfig).find("--force"), std::string::npos);
  EXPECT_EQ(testing::md5_of_file(run.prefix() + ".bin"), before);
  run.options.force = true;
  (void)run.go();
  EXPECT_EQ(testing::read_sequence(IndexedDataset(run.prefix()), 0), (Tokens{'c', 'd', 'e'}));
}

TEST(Preprocess, BadOptionsAreRefused) {
  CorpusRun run("{\"text\": \"ab\"}\n");
  run.options.workers = 0;
  EXPECT_NE(run.error(ErrorKind::kConfig).find("--workers"), std::string::npos);
  run.options.workers = 1;
  run.options.json_keys = {};
  EXPECT_NE(run.error(ErrorKind::kConfig).find("--json-keys"), std::string::npos);
  run.options.json_keys = {"../x"};
  EXPECT_NE(run.error(ErrorKind::kConfig).find("slash"), std::string::npos);
  run.options.json_keys = {"text", "text"};
  EXPECT_NE(run.error(ErrorKind::kConfig).find("twice"), std::string::npos);
  run.options.json_keys = {"text"};
  run.options.partitions = 2;
  EXPECT_NE(run.error(ErrorKind::kConfig).find("--partitions 2 must divide --workers 1"),
            std::string::npos);
  run.options.partitions = 1;
  run.options.keep_newlines = true;
  EXPECT_NE(run.error(ErrorKind::kConfig).find("--split-sentences"), std::string::npos);
  run.options.keep_newlines = false;
  run.options.inputs = {run.folder.path() / "missing"};
  EXPECT_NE(run.error(ErrorKind::kIo).find("missing"), std::string::npos);
  EXPECT_TRUE(run.outputs().empty());
}

TEST(Preprocess, CorpusWithoutDocumentsIsNamed) {
  for (const char* text : {"", "\n \r\n", "{\"text\": \"\"}\n{\"text\": []}\n"}) {
    CorpusRun run(text);
    EXPECT_NE(run.error().find("holds no document"), std::string::npos);
    EXPECT_TRUE(run.outputs().empty());
  }
}

TEST(Preprocess, BadLineIsNamedWhateverTheWorkers) {
  // The first of two bad lines, far apart, is the one that is told.
  std::string text = many_lines(9000) + "{\"text\": 5}\n" + many_lines(9000) + "nonsense\n";
  for (const std::int64_t workers : {1, 4}) {
    CorpusRun run(text);
    run.options.workers = workers;
    run.options.log_interval = 0;
    EXPECT_NE(run.error().find("in.jsonl:9001:10: key \"text\" must hold a string"),
              std::string::npos);
    EXPECT_TRUE(run.outputs().empty());
  }
}

TEST(Preprocess, LinesThatAreTooLongAreNamedOrCounted) {
  CorpusRun run("{\"text\": \"ab\"}\n{\"text\": \"" + std::string(700000, 'x') +
                "\"}\n{\"text\": \"c\"}\n");
  run.options.max_line_bytes = 1000;
  EXPECT_NE(run.error().find("in.jsonl:2:1: longer than 1000 bytes"), std::string::npos);
  run.options.on_bad_line = OnBadLine::kSkip;
  const PreprocessStats stats = run.go();
  EXPECT_EQ(stats.bad_lines, 1);
  EXPECT_EQ(stats.keys[0].documents, 2);
}

TEST(Preprocess, NulIsText) {
  CorpusRun run("{\"text\": \"a\\u0000b\"}\n");
  (void)run.go();
  EXPECT_EQ(testing::read_sequence(IndexedDataset(run.prefix()), 0), (Tokens{'a', 0, 'b'}));
}

// F16: a line over the limit is told at once, not at its end.
TEST(Preprocess, F16_ALineWithoutEnd) {
  CorpusRun run("");
  run.options.inputs = {"/dev/zero"};
  const std::string message = run.error();
  EXPECT_NE(message.find("/dev/zero:1:1: longer than 268435456 bytes (--max-line-mb"),
            std::string::npos)
      << message;
  EXPECT_TRUE(run.outputs().empty());
}

TEST(Preprocess, EveryPackingGivesTheSameBytesInTheOrderOfTheInput) {
  const std::string part = many_lines(3000);
  CorpusRun plain(part + part + part);
  plain.options.append_eod = true;
  plain.options.log_interval = 0;
  (void)plain.go();
  for (const auto& [ending, pack] :
       std::vector<std::pair<std::string, std::string (*)(std::string_view)>>{
           {".gz", testing::gzip},
           {".zst", testing::zstd},
           {".bz2", testing::bzip2},
           {".xz", testing::xz}}) {
    CorpusRun run(part);
    testing::write_text(run.input() + ending, pack(part));
    testing::write_text(run.folder.path() / "last.jsonl", part);
    run.options.inputs = {run.input(), run.input() + ending,
                          (run.folder.path() / "last.*").string()};
    run.options.append_eod = true;
    run.options.workers = 3;
    std::vector<std::string> lines;
    run.options.on_progress = [&](std::string_view line) { lines.emplace_back(line); };
    EXPECT_EQ(run.go().bytes, 3 * part.size());
    EXPECT_EQ(testing::md5_of_file(run.prefix() + ".bin"),
              testing::md5_of_file(plain.prefix() + ".bin"));
    EXPECT_EQ(testing::md5_of_file(run.prefix() + ".idx"),
              testing::md5_of_file(plain.prefix() + ".idx"));
    ASSERT_EQ(lines.size(), 9U);
    EXPECT_NE(lines.back().find(" MB/s). 100.0 % of the input, 0:00:00 left."), std::string::npos)
        << lines.back();
  }
}

TEST(Preprocess, BadLinesOfLaterFilesAreNamed) {
  CorpusRun run("{\"text\": \"a\"}\n");
  const std::string second = (run.folder.path() / "two.jsonl.gz").string();
  testing::write_text(second, testing::gzip("{\"text\": \"b\"}\n\n{\"text\": 1}\n"));
  run.options.inputs.push_back(second);
  EXPECT_NE(run.error().find("two.jsonl.gz:3:10: key"), std::string::npos);
}

TEST(Preprocess, PlainTextByLineOrByFile) {
  CorpusRun run("");
  const std::string path = (run.folder.path() / "a.txt").string();
  testing::write_text(path, "one\r\n\n two\n");
  run.options.inputs = {path};
  run.options.txt_documents = "line";
  EXPECT_EQ(run.go().keys[0].documents, 2);
  const IndexedDataset lines(run.prefix());
  EXPECT_EQ(testing::read_sequence(lines, 0), (Tokens{'o', 'n', 'e'}));
  EXPECT_EQ(testing::read_sequence(lines, 1), (Tokens{' ', 't', 'w', 'o'}));
  run.options.txt_documents = "file";
  run.options.force = true;
  EXPECT_EQ(run.go().keys[0].documents, 1);
  EXPECT_EQ(testing::read_sequence(IndexedDataset(run.prefix()), 0),
            (Tokens{'o', 'n', 'e', '\r', '\n', '\n', ' ', 't', 'w', 'o', '\n'}));
  testing::write_text(path, "fine\nbad \xff\n");
  EXPECT_NE(run.error().find("a.txt:2:5: not valid UTF-8"), std::string::npos);
  run.options.txt_documents = "line";
  EXPECT_NE(run.error().find("a.txt:2:5: not valid UTF-8"), std::string::npos);
  run.options.json_keys = {"a", "b"};
  EXPECT_NE(run.error(ErrorKind::kConfig).find("plain text has none"), std::string::npos);
}

TEST(Preprocess, SentencesAreSequences) {
  CorpusRun run("{\"text\": \"Aa bb.\\n Cc dd. \", \"t\": [\"Ee. Ff.\", \"Gg\"]}\n");
  run.options.split_sentences = true;
  run.options.append_eod = true;
  run.options.json_keys = {"text", "t"};
  const PreprocessStats stats = run.go();
  EXPECT_EQ(stats.keys[0].output_prefix, run.options.output_prefix + "_text_sentence");
  EXPECT_EQ(stats.keys[0].sequences, 2);
  EXPECT_EQ(stats.keys[1].sequences, 3);
  const IndexedDataset text(stats.keys[0].output_prefix);
  EXPECT_EQ(text.num_documents(), 1);
  EXPECT_EQ(testing::read_sequence(text, 0), (Tokens{'A', 'a', ' ', 'b', 'b', '.'}));
  EXPECT_EQ(testing::read_sequence(text, 1), (Tokens{'C', 'c', ' ', 'd', 'd', '.', 256}));
  run.options.keep_newlines = true;
  run.options.force = true;
  (void)run.go();
  EXPECT_EQ(testing::read_sequence(IndexedDataset(stats.keys[0].output_prefix), 0),
            (Tokens{'A', 'a', ' ', 'b', 'b', '.', '\n', ' '}));
}

TEST(Preprocess, ReportedLinesAreAllNamed) {
  std::string text = "{\"text\": \"a\"}\n";
  for (int i = 0; i < 30; ++i) text += "{\"text\": 1}\n";
  for (const auto& [mode, named] :
       {std::pair(OnBadLine::kSkip, 10), std::pair(OnBadLine::kReport, 30)}) {
    CorpusRun run(text);
    run.options.on_bad_line = mode;
    ::testing::internal::CaptureStderr();
    const PreprocessStats stats = run.go();
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(stats.bad_lines, 30);
    int lines = 0;
    for (std::size_t at = 0; (at = said.find("; line skipped", at)) != std::string::npos; ++at) {
      ++lines;
    }
    EXPECT_EQ(lines, named) << said;
  }
}

TEST(Preprocess, MeasuringWorkersWritesNothing) {
  CorpusRun run(many_lines(5000));
  const std::vector<std::int64_t> counts = {1, 3};
  const auto rates = measure_workers(run.options, ByteTokenizer(), counts, 2000);
  ASSERT_EQ(rates.size(), 2U);
  EXPECT_EQ(rates[1].workers, 3);
  for (const WorkerRate& rate : rates) {
    EXPECT_GE(rate.documents, 2000);
    EXPECT_LT(rate.documents, 5000);
    EXPECT_GT(rate.documents_per_second, 0);
  }
  EXPECT_TRUE(run.outputs().empty());
}

// Long lines side by side: what is under way is bounded, whatever the workers.
TEST(Preprocess, LongLinesStayInBoundedMemory) {
  CorpusRun run("");
  {
    std::ofstream out(run.input(), std::ios::binary);
    const std::string text(2 << 20, 'x');
    for (int i = 0; i < 12; ++i) out << "{\"text\": \"" << text << "\"}\n";
  }
  run.options.workers = 16;
  run.options.max_bytes_under_way = 4 << 20;
  const std::int64_t before = testing::reset_peak();
  EXPECT_EQ(run.go().keys[0].tokens, 12 * (2 << 20));
  // Without the bound all of them, with 8 MiB of tokens or more each, would be held.
  EXPECT_LT(testing::peak_bytes() - before, 2 * kMaxGrowth);
}

TEST(Preprocess, TextThatTheTokenizerRefusesIsABadLine) {
  CorpusRun run("{\"text\": \"1 2\"}\n{\"text\": \"1 x\"}\n");
  try {
    (void)preprocess(run.options, tokenizers::NullTokenizer(100));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_NE(std::string(error.what()).find("in.jsonl:2:"), std::string::npos) << error.what();
  }
}

TEST(Cases, MegatronLM_62) {
  // Empty documents first, in the middle, last: left out and counted, with append_eod too.
  for (const bool eod : {false, true}) {
    CorpusRun run(
        "{\"text\": \"\"}\n{\"text\": \"ab\"}\n{\"text\": \"\"}\n{\"text\": \"c\"}\n{\"text\": "
        "\"\"}\n");
    run.options.append_eod = eod;
    const PreprocessStats stats = run.go();
    EXPECT_EQ(stats.keys[0].documents, 2);
    EXPECT_EQ(stats.keys[0].empty_documents, 3);
    EXPECT_EQ(IndexedDataset(run.prefix()).num_documents(), 2);
  }
}

TEST(Cases, MegatronLM_431) {
  CorpusRun run("{\"text\": \"abc\"}\n{\"text\": \"d\"}\n");
  run.options.append_eod = true;
  const PreprocessStats stats = run.go();
  const IndexedDataset dataset(run.prefix());
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < dataset.num_sequences(); ++i) {
    sum += dataset.sequence_length(i);
    EXPECT_EQ(testing::read_sequence(dataset, i).back(), 256);
  }
  EXPECT_EQ(sum, 6);
  EXPECT_EQ(stats.keys[0].tokens, sum);
  EXPECT_EQ(std::filesystem::file_size(run.prefix() + ".bin"), 12U);
}

TEST(Cases, MegatronLLM_94) {
  CorpusRun run("{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"body\": \"c\"}\n");
  EXPECT_NE(run.error().find("in.jsonl:3:1: key \"text\" is missing"), std::string::npos);
  EXPECT_TRUE(run.outputs().empty());
  run.options.on_bad_line = OnBadLine::kSkip;
  EXPECT_EQ(run.go().bad_lines, 1);
}

TEST(Cases, Minimind_551) {
  struct Bad {
    std::string line;
    std::string place;  // line 2
  };
  const std::vector<Bad> bad = {
      {"{\"text\": \"a\xff\"}", ":2:12: not valid UTF-8"},
      {"{\"text\": \"a\"}{\"text\": \"b\"}", ":2:14: not one JSON object"},
      {"{\"text\": \"a\"} {\"text\": \"b\"}", ":2:15: not one JSON object"},
      {"{\"text\": \"half", ":2:15: not one JSON object: ends in the middle of a string"},
      {"{\"text\": \"a\"", ":2:13: not one JSON object"},
      {"{\"text\": \"\\ud800\"}", ":2:10: key \"text\" holds a lone surrogate"},
      {"{\"text\": \"\\udc00\"}", ":2:10: key \"text\" holds a lone surrogate"},
      {"{\"text\": \"\\q\"}", ":2:12: "},
      {"{\"text\": \"a\tb\"}", ":2:12: "},
      {std::string("{\"text\": \"a\0b\"}", 15), ":2:12: "},
      {"{\"text\": null}", ":2:10: key \"text\" must hold"},
      {"{\"text\": [\"a\", 3]}", ":2:10: key \"text\" must hold"},
      {"[\"text\"]",
       ":2:1: not one JSON object: no object begins here; of a file that is one list"},
      {"\xef\xbb\xbf{\"text\": \"a\"}", ":2:1: starts with a byte order mark"},
      {"{text: \"a\"}", ":2:2: "},
      {"{\"x\": " + std::string(5000, '['), ":2:1030: not one JSON object: is nested deeper"},
  };
  for (const Bad& each : bad) {
    // As a whole line and as the last one, without a line feed.
    for (const std::string end : {"\n{\"text\": \"z\"}\n", ""}) {
      CorpusRun run("{\"text\": \"first\"}\n" + each.line + end);
      const std::string message = run.error();
      EXPECT_NE(message.find("in.jsonl" + each.place), std::string::npos) << each.place << "\n"
                                                                          << message;
      EXPECT_TRUE(run.outputs().empty());
      run.options.on_bad_line = OnBadLine::kSkip;
      const PreprocessStats stats = run.go();
      EXPECT_EQ(stats.bad_lines, 1);
      EXPECT_EQ(stats.keys[0].documents, stats.lines - 1);
    }
  }
}

TEST(Cases, MegatronLM_122) {
  // Documents of exactly one sentence, with and without its mark.
  CorpusRun run("{\"text\": \"One only.\"}\n{\"text\": \"no mark\"}\n{\"text\": \"A. B c. D.\"}\n");
  run.options.split_sentences = true;
  const PreprocessStats stats = run.go();
  const IndexedDataset dataset(stats.keys[0].output_prefix);
  EXPECT_EQ(dataset.num_documents(), 3);
  EXPECT_EQ(dataset.document_range(0), std::pair(0L, 1L));
  EXPECT_EQ(dataset.document_range(1), std::pair(1L, 2L));
  for (std::int64_t i = 0; i < dataset.num_sequences(); ++i) {
    EXPECT_GT(dataset.sequence_length(i), 0);
  }
}

TEST(Cases, MegatronLM_1052) {
  // Sentences with any number of partitions: the output is there, and the same.
  std::set<std::string> sums;
  for (const std::int64_t partitions : {1, 2, 4}) {
    CorpusRun run(many_lines(500) + "{\"text\": \"One here. Two there.\"}\n");
    run.options.split_sentences = true;
    run.options.workers = 4;
    run.options.partitions = partitions;
    const std::string prefix = run.go().keys[0].output_prefix;
    sums.insert(testing::md5_of_file(prefix + ".bin") + testing::md5_of_file(prefix + ".idx"));
  }
  EXPECT_EQ(sums.size(), 1U);
}

TEST(Cases, MegatronLM_154) {
  // A million short documents: the peak of this process stays far under the row's 200 MB, and rises
  // little.
  CorpusRun run("");
  {
    std::ofstream out(run.input(), std::ios::binary);
    for (int i = 0; i < 1000000; ++i) out << "{\"text\": \"doc " << i << "\"}\n";
  }
  run.options.workers = 2;
  run.options.append_eod = true;
  run.options.log_interval = 0;
  const std::int64_t before = testing::reset_peak();
  const PreprocessStats stats = run.go();
  EXPECT_EQ(stats.keys[0].documents, 1000000);
  EXPECT_LT(testing::peak_bytes() - before, kMaxGrowth);
  EXPECT_EQ(IndexedDataset(run.prefix()).num_documents(), 1000000);
}

}  // namespace
}  // namespace pentatron::datasets
