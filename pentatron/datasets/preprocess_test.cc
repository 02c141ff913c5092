// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/preprocess.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/datasets/test_corpus.h"
#include "pentatron/tokenizers/null_tokenizer.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::datasets {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<std::int64_t>;

// One token a byte; the end of document is 256.
class ByteTokenizer final : public tokenizers::Tokenizer {
 public:
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
    return std::string(ids.begin(), ids.end());
  }
  [[nodiscard]] std::int64_t vocab_size() const override { return 257; }
  [[nodiscard]] std::int32_t eod() const override { return 256; }
  [[nodiscard]] std::int32_t pad() const override { return -1; }
  [[nodiscard]] tokenizers::TokenizerDescription description() const override { return {}; }
  [[nodiscard]] std::string identity_hash() const override { return "bytes"; }

 protected:
  void do_encode(std::string_view text, std::vector<std::int32_t>& ids,
                 tokenizers::SpecialTokens /*special*/) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
};

struct CorpusRun {
  TempFolder folder;
  PreprocessOptions options;

  explicit CorpusRun(std::string_view text) {
    options.input = (folder.path() / "in.jsonl").string();
    options.output_prefix = (folder.path() / "out").string();
    testing::write_text(options.input, text);
  }
  PreprocessStats go() { return preprocess(options, ByteTokenizer()); }
  // Message of the error; fails when there is none.
  std::string error(ErrorKind kind = ErrorKind::kData) {
    try {
      (void)go();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return "";
  }
  [[nodiscard]] std::string prefix(const std::string& key = "text") const {
    return options.output_prefix + "_" + key + "_document";
  }
  // Names beside the input.
  [[nodiscard]] std::set<std::string> outputs() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      names.insert(entry.path().filename());
    }
    names.erase("in.jsonl");
    return names;
  }
};

std::string many_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += fmt::format("{{\"text\": \"{}\", \"n\": {}}}\n",
                        std::string(static_cast<std::size_t>(i % 97), 'a' + i % 26), i);
  }
  return text;
}

TEST(Preprocess, WritesWhatTheLinesHold) {
  CorpusRun run("{\"text\": \"ab\"}\n{\"id\": 1, \"text\": \"c\\u00e9\\n\"}\r\n{\"text\":\"d\"}");
  const PreprocessStats stats = run.go();
  EXPECT_EQ(stats.lines, 3);
  EXPECT_EQ(stats.bytes, fs::file_size(run.options.input));
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
  EXPECT_TRUE(lines[1].ends_with(" MB/s).")) << lines[1];
}

TEST(Preprocess, ExistingOutputStays) {
  CorpusRun run("{\"text\": \"ab\"}\n");
  (void)run.go();
  const std::string before = testing::md5_of_file(run.prefix() + ".bin");
  testing::write_text(run.options.input, "{\"text\": \"cde\"}\n");
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
  run.options.input = run.folder.path().string();
  EXPECT_NE(run.error(ErrorKind::kIo).find("folder"), std::string::npos);
  run.options.input += "/missing";
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
    EXPECT_NE(run.error().find("in.jsonl:9001:1: key \"text\" must hold a string"),
              std::string::npos);
    EXPECT_TRUE(run.outputs().empty());
  }
}

TEST(Preprocess, LinesThatAreTooLongAreNamedOrCounted) {
  CorpusRun run("{\"text\": \"ab\"}\n{\"text\": \"" + std::string(700000, 'x') +
                "\"}\n{\"text\": \"c\"}\n");
  run.options.max_line_bytes = 1000;
  EXPECT_NE(run.error().find("in.jsonl:2:1: longer than 1000 bytes"), std::string::npos);
  run.options.skip_bad_lines = true;
  const PreprocessStats stats = run.go();
  EXPECT_EQ(stats.bad_lines, 1);
  EXPECT_EQ(stats.keys[0].documents, 2);
}

TEST(Preprocess, NulIsTextAndTheLastOfEqualKeysCounts) {
  CorpusRun run("{\"text\": \"no\", \"text\": \"a\\u0000b\"}\n");
  (void)run.go();
  EXPECT_EQ(testing::read_sequence(IndexedDataset(run.prefix()), 0), (Tokens{'a', 0, 'b'}));
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
  EXPECT_EQ(fs::file_size(run.prefix() + ".bin"), 12U);
}

TEST(Cases, MegatronLLM_94) {
  CorpusRun run("{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"body\": \"c\"}\n");
  EXPECT_NE(run.error().find("in.jsonl:3:1: key \"text\" is missing"), std::string::npos);
  EXPECT_TRUE(run.outputs().empty());
  run.options.skip_bad_lines = true;
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
      {"{\"text\": \"half", ":2:"},
      {"{\"text\": \"a\"", ":2:13: not one JSON object"},
      {"{\"text\": \"\\ud800\"}", ":2:"},
      {"{\"text\": \"\\udc00\"}", ":2:"},
      {"{\"text\": \"\\q\"}", ":2:12: "},
      {"{\"text\": \"a\tb\"}", ":2:12: "},
      {std::string("{\"text\": \"a\0b\"}", 15), ":2:"},
      {"{\"text\": null}", ":2:1: key \"text\" must hold"},
      {"{\"text\": [\"a\", 3]}", ":2:1: key \"text\" must hold"},
      {"[\"text\"]", ":2:1: not a JSON object"},
      {"\xef\xbb\xbf{\"text\": \"a\"}", ":2:1: starts with a byte order mark"},
      {"{text: \"a\"}", ":2:3: "},
      {std::string(5000, '['), ":2:"},
  };
  for (const Bad& each : bad) {
    // As a whole line and as the last one, without a line feed.
    for (const std::string end : {"\n{\"text\": \"z\"}\n", ""}) {
      CorpusRun run("{\"text\": \"first\"}\n" + each.line + end);
      const std::string message = run.error();
      EXPECT_NE(message.find("in.jsonl" + each.place), std::string::npos) << each.place << "\n"
                                                                          << message;
      EXPECT_TRUE(run.outputs().empty());
      run.options.skip_bad_lines = true;
      const PreprocessStats stats = run.go();
      EXPECT_EQ(stats.bad_lines, 1);
      EXPECT_EQ(stats.keys[0].documents, stats.lines - 1);
    }
  }
}

// AddressSanitizer keeps freed memory for a while, so its bound is a wide one.
#ifdef __SANITIZE_ADDRESS__
constexpr std::int64_t kMaxGrowth = 512LL << 20;
#else
constexpr std::int64_t kMaxGrowth = 64LL << 20;
#endif

TEST(Cases, MegatronLM_154) {
  // A million short documents: the peak of this process stays far under the row's 200 MB, and rises
  // little.
  const auto peak_bytes = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
  };
  CorpusRun run("");
  {
    std::ofstream out(run.options.input, std::ios::binary);
    for (int i = 0; i < 1000000; ++i) out << "{\"text\": \"doc " << i << "\"}\n";
  }
  run.options.workers = 2;
  run.options.append_eod = true;
  run.options.log_interval = 0;
  const std::int64_t before = peak_bytes();
  const PreprocessStats stats = run.go();
  EXPECT_EQ(stats.keys[0].documents, 1000000);
  EXPECT_LT(peak_bytes() - before, kMaxGrowth);
  EXPECT_EQ(IndexedDataset(run.prefix()).num_documents(), 1000000);
}

// Runs in the folder of the environment when a fault test below starts it in a process of its own.
TEST(PreprocessFaults, WritesBothFiles) {
  const TempFolder own;
  const char* given = std::getenv("PENTATRON_TEST_FOLDER");
  const fs::path folder = given == nullptr ? own.path() : fs::path(given);
  PreprocessOptions options;
  options.input = (folder / "in.jsonl").string();
  options.output_prefix = (folder / "out").string();
  options.log_interval = 0;
  if (given == nullptr) testing::write_text(options.input, many_lines(100));
  (void)preprocess(options, ByteTokenizer());
  EXPECT_EQ(IndexedDataset((folder / "out_text_document").string()).num_documents(), 98);
}

// Exit status of the test above with a fault planned.
int run_with_fault(const fs::path& folder, const std::string& fault) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("PENTATRON_TEST_FOLDER", folder.c_str(), 1);
    ::setenv("PENTATRON_FAULT_STOP_AT", fault.c_str(), 1);
    std::freopen("/dev/null", "w", stdout);
    ::execl("/proc/self/exe", "datasets_test", "--gtest_filter=PreprocessFaults.WritesBothFiles",
            nullptr);
    ::_exit(99);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(PreprocessFaults, KilledAtEveryOperationLeavesNoHalfFile) {
  int killed = 0;
  for (const std::string kind : {"write", "sync", "rename"}) {
    bool finished = false;
    for (int n = 1; n < 50 && !finished; ++n) {
      const TempFolder folder;
      testing::write_text(folder.path() / "in.jsonl", many_lines(100));
      const int status = run_with_fault(folder.path(), fmt::format("{}:{}", kind, n));
      const std::string prefix = (folder.path() / "out_text_document").string();
      finished = WIFEXITED(status);
      ASSERT_TRUE(finished ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL) << status;
      if (!finished) ++killed;
      // An index is there only with its whole corpus.
      if (finished || fs::exists(prefix + ".idx")) {
        EXPECT_EQ(IndexedDataset(prefix).num_documents(), 98) << kind << n;
      }
      if (fs::exists(prefix + ".bin")) {
        EXPECT_EQ(fs::file_size(prefix + ".bin"), 4659U * 2U) << kind << n;
      }
    }
    EXPECT_TRUE(finished) << kind;
  }
  EXPECT_GE(killed, 8);
}

TEST(PreprocessFaults, FullDiskLeavesNothingUnderAFinalName) {
  for (const std::string fault :
       {"error:write:1", "error:write:2", "error:sync:1", "error:rename:1"}) {
    const TempFolder folder;
    testing::write_text(folder.path() / "in.jsonl", many_lines(100));
    const int status = run_with_fault(folder.path(), fault);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_NE(WEXITSTATUS(status), 0) << fault;
    EXPECT_FALSE(fs::exists(folder.path() / "out_text_document.idx")) << fault;
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      EXPECT_EQ(entry.path().string().find(".tmp."), std::string::npos) << entry.path();
    }
  }
}

}  // namespace
}  // namespace pentatron::datasets
