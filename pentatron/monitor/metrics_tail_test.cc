// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/metrics_tail.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <fstream>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"

namespace pentatron::monitor {
namespace {

using Result = MetricsTail::Result;

std::string line(std::int64_t iteration, double loss = 1.5) {
  return R"({"kind":"train","iteration":)" + std::to_string(iteration) + R"(,"lm_loss":)" +
         std::to_string(loss) + "}\n";
}

void append(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

// One poll; the iterations of its records.
struct Polled {
  Result result;
  std::vector<std::int64_t> iterations;
};
Polled poll(MetricsTail& tail) {
  std::vector<Record> records;
  Polled polled{.result = tail.poll(records), .iterations = {}};
  for (const Record& record : records) polled.iterations.push_back(record.iteration);
  return polled;
}
void expect_poll(MetricsTail& tail, Result result, const std::vector<std::int64_t>& iterations) {
  const Polled polled = poll(tail);
  EXPECT_EQ(static_cast<int>(polled.result), static_cast<int>(result));
  EXPECT_EQ(polled.iterations, iterations);
}

class Tail : public testing::Test {
 protected:
  TempFolder folder_;
  std::filesystem::path path_ = folder_.path() / "m.jsonl";
  MetricsTail tail_{path_};
};

TEST_F(Tail, ReadsOnlyWhatIsNew) {
  expect_poll(tail_, Result::kGone, {});
  append(path_, line(1) + line(2));
  expect_poll(tail_, Result::kStartedAnew, {1, 2});
  expect_poll(tail_, Result::kNothingNew, {});
  append(path_, line(3));
  expect_poll(tail_, Result::kAppended, {3});
  // A line that comes in pieces counts once it has its end.
  const std::string four = line(4);
  append(path_, four.substr(0, 10));
  expect_poll(tail_, Result::kAppended, {});
  append(path_, four.substr(10));
  expect_poll(tail_, Result::kAppended, {4});
  EXPECT_EQ(tail_.num_bad_lines(), 0);
}

TEST_F(Tail, StartsAnewWhenTheFileWasCutReplacedOrRewritten) {
  append(path_, line(1) + line(2) + line(3));
  expect_poll(tail_, Result::kStartedAnew, {1, 2, 3});
  std::filesystem::resize_file(path_, line(1).size());
  expect_poll(tail_, Result::kStartedAnew, {1});
  // As a resumed run does: another file under the name.
  write_file_atomically(path_, line(1) + line(2));
  expect_poll(tail_, Result::kStartedAnew, {1, 2});
  append(path_, line(3));
  expect_poll(tail_, Result::kAppended, {3});
  // In place, and longer than what was read.
  std::ofstream(path_, std::ios::binary | std::ios::trunc)
      << line(7) << line(8) << line(9) << line(10);
  expect_poll(tail_, Result::kStartedAnew, {7, 8, 9, 10});
  std::filesystem::remove(path_);
  expect_poll(tail_, Result::kGone, {});
  append(path_, line(1));
  expect_poll(tail_, Result::kStartedAnew, {1});
}

TEST_F(Tail, HostileLinesAreCountedAndSkipped) {
  append(path_, line(1));
  append(path_, "no json\n[1,2]\n{\"kind\":\"train\"}\n");
  append(path_, R"({"kind":"train","iteration":-1})"
                "\n");
  append(path_, R"({"kind":"train","iteration":1e300})"
                "\n");
  append(path_, R"({"kind":"train","iteration":18446744073709551615})"
                "\n");
  append(path_, R"({"kind":["train"],"iteration":5})"
                "\n");
  append(path_, std::string("{\"kind\":\"train\",\0\"iteration\":1}\n", 32));
  append(path_, "\xff\xfe\n" + std::string(60'000, '[') + "\n");
  append(path_, R"({"kind":"sample","iteration":3,"prompt":1,"text":"x"})"
                "\n\n  \n");
  append(path_, line(2));
  expect_poll(tail_, Result::kStartedAnew, {1, 2});
  EXPECT_EQ(tail_.num_bad_lines(), 11);
}

TEST_F(Tail, ALineWithoutEndIsNotKept) {
  append(path_, line(1));
  const std::string huge(3 << 20, 'x');
  for (int i = 0; i < 4; ++i) append(path_, huge);  // more than one poll reads
  append(path_, "\n" + line(2));
  expect_poll(tail_, Result::kStartedAnew, {1});
  Polled last = poll(tail_);
  while (last.result == Result::kAppended && last.iterations.empty()) last = poll(tail_);
  EXPECT_EQ(last.iterations, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(tail_.num_bad_lines(), 1);
  EXPECT_EQ(tail_.bytes_read(), tail_.size());
}

TEST_F(Tail, OpensNothingButRegularFiles) {
  append(folder_.path() / "elsewhere", line(1));
  std::filesystem::create_symlink(folder_.path() / "elsewhere", path_);
  expect_poll(tail_, Result::kGone, {});
  std::filesystem::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);  // would wait for a writer
  expect_poll(tail_, Result::kGone, {});
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  expect_poll(tail_, Result::kGone, {});
}

TEST(ParseRecord, TakesTheFieldsItKnows) {
  const auto record = parse_record(
      R"({"kind":"validation","iteration":12,"lm_loss":2.5,"grad_norm":"nan","valid_tokens":9})");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->kind, RecordKind::kValidation);
  EXPECT_EQ(record->iteration, 12);
  EXPECT_EQ(record->values[0], 2.5);
  EXPECT_TRUE(std::isnan(record->values[1]));  // not finite
  EXPECT_TRUE(std::isnan(record->values[2]));  // not there
}

TEST(ParseRecord, NamesOneOfSeveralValidationSets) {
  const auto set_of = [](const std::string& kind) {
    const auto record = parse_record(R"({"kind":")" + kind + R"(","iteration":1,"lm_loss":2})");
    return record && record->kind == RecordKind::kValidation ? record->set : "no evaluation";
  };
  EXPECT_EQ(set_of("validation"), "");
  EXPECT_EQ(set_of("validation-web"), "web");
  EXPECT_EQ(set_of("validation-two-0"), "two-0");
  EXPECT_EQ(set_of("validation-" + std::string(500, 'x')), std::string(60, 'x') + "...");
  for (const char* kind : {"validation-", "validations", "test-web", "train-web"}) {
    EXPECT_EQ(set_of(kind), "no evaluation") << kind;
  }
}

TEST(ParseRecord, SampleTextsAreCutBetweenCharacters) {
  std::string text = "x";
  for (int i = 0; i < 3000; ++i) text += "\xc3\xa4";  // two bytes each
  const auto record =
      parse_record(R"({"kind":"sample","iteration":1,"prompt":"p","text":")" + text + "\"}");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->prompt, "p");
  EXPECT_EQ(record->text, text.substr(0, 3999) + "...");
}

}  // namespace
}  // namespace pentatron::monitor
