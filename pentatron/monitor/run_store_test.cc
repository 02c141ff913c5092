// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/run_store.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"

namespace pentatron::monitor {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string train(std::int64_t iteration) {
  return R"({"kind":"train","iteration":)" + std::to_string(iteration) + ",\"lm_loss\":2.5}\n";
}

void append(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

json runs_of(RunStore& store) {
  store.refresh(0);
  return json::parse(store.runs_json())["runs"];
}

std::vector<std::string> names_of(RunStore& store) {
  std::vector<std::string> names;
  for (const json& run : runs_of(store)) names.push_back(run["name"]);
  return names;
}

TEST(RunStore, FindsRunsInTwoLevelsAndNoLinks) {
  const TempFolder folder;
  const TempFolder outside;
  append(outside.path() / "secret.jsonl", train(1));
  append(folder.path() / "b.jsonl", train(1));
  append(folder.path() / "a" / "metrics.jsonl", train(1));
  append(folder.path() / "a" / "deep" / "c.jsonl", train(1));
  append(folder.path() / "a" / "deep" / "deeper" / "d.jsonl", train(1));
  append(folder.path() / "notes.txt", train(1));
  fs::create_symlink(outside.path() / "secret.jsonl", folder.path() / "link.jsonl");
  fs::create_directory_symlink(outside.path(), folder.path() / "linked");
  RunStore store(folder.path());
  EXPECT_EQ(names_of(store), (std::vector<std::string>{"a/deep/c", "a", "b"}));
  // One more later; numbers stay. One goes.
  append(folder.path() / "a0.jsonl", train(1));
  fs::remove(folder.path() / "a" / "metrics.jsonl");
  EXPECT_EQ(names_of(store), (std::vector<std::string>{"a/deep/c", "b", "a0"}));
  EXPECT_EQ(runs_of(store)[2]["id"], 3);
  expect_error(ErrorKind::kIo, "is no folder", [&] { RunStore none(folder.path() / "b.jsonl"); });
}

TEST(RunStore, SendsRecordsFromAnOffset) {
  const TempFolder folder;
  const fs::path file = folder.path() / "r.jsonl";
  append(file, train(1) + train(2));
  append(file, R"({"kind":"sample","iteration":2,"prompt":"<b>","text":"\"</script>"})"
               "\n");
  RunStore store(folder.path());
  const json run = runs_of(store)[0];
  EXPECT_EQ(run["num_records"], 3);
  const json all = json::parse(store.records_json(0, run["generation"], 0));
  ASSERT_EQ(all["records"].size(), 3U);
  EXPECT_EQ(all["records"][1],
            json::array({"t", 2, 2.5, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr}));
  EXPECT_EQ(all["records"][2], json::array({"s", 2, "<b>", "\"</script>"}));
  append(file, train(3));
  store.refresh(0);
  const json rest = json::parse(store.records_json(0, run["generation"], all["next"]));
  EXPECT_EQ(rest["from"], 3);
  ASSERT_EQ(rest["records"].size(), 1U);
  EXPECT_EQ(rest["records"][0][1], 3);
  // Rewritten: what the reader holds is void.
  write_file_atomically(file, train(1));
  store.refresh(0);
  const json anew = json::parse(store.records_json(0, run["generation"], 4));
  EXPECT_NE(anew["generation"], run["generation"]);
  EXPECT_EQ(anew["from"], 0);
  EXPECT_EQ(anew["records"].size(), 1U);
  for (const std::int64_t none : {-1, 1, 1000}) EXPECT_EQ(store.records_json(none, 1, 0), "");
  EXPECT_EQ(json::parse(store.records_json(0, anew["generation"], 1'000'000))["records"].size(),
            0U);
  EXPECT_EQ(json::parse(store.records_json(0, anew["generation"], -5))["from"], 0);
}

TEST(RunStore, SeveralValidationSetsAreToldByName) {
  const TempFolder folder;
  const fs::path file = folder.path() / "r.jsonl";
  const auto evaluated = [](const std::string& set) {
    return R"({"kind":"validation-)" + set + R"(","iteration":4,"lm_loss":2.5})" + "\n";
  };
  append(file, train(4) + evaluated("web") + evaluated("<b>code</b>"));
  RunStore store(folder.path());
  EXPECT_EQ(runs_of(store)[0]["bad_lines"], 0);
  const json rows = json::parse(store.records_json(0, 1, 0))["records"];
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].size(), 2 + kFields.size());
  EXPECT_EQ(rows[1], json::array({"v", 4, 2.5, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                                  "web"}));
  EXPECT_EQ(rows[2].back(), "<b>code</b>");
  // A file cannot fill the page's key: beyond some sets no more are taken, the known ones go on.
  for (int i = 0; i < 1000; ++i) append(file, evaluated(std::to_string(i)));
  append(file, evaluated("web"));
  EXPECT_EQ(runs_of(store)[0]["num_records"], 1 + RunStore::kMaxSets + 1);
  write_file_atomically(file, train(1) + evaluated("another"));
  EXPECT_EQ(runs_of(store)[0]["num_records"], 2);
}

TEST(RunStore, NamesThatAreNoTextDoNotBreakTheAnswer) {
  const TempFolder folder;
  append(folder.path() / "a\xff<\"&.jsonl", train(1));
  RunStore store(folder.path());
  const json runs = runs_of(store);
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0]["name"], "a\xef\xbf\xbd<\"&");
}

TEST(RunStore, LongRunsAreThinnedOut) {
  const TempFolder folder;
  const auto count = static_cast<std::int64_t>(RunStore::kMaxRecords);
  std::string text;
  for (std::int64_t i = 1; i <= count + 1; ++i) {
    text += train(i);
    if (i == 7)
      text += R"({"kind":"validation","iteration":7,"lm_loss":1})"
              "\n";
  }
  append(folder.path() / "r.jsonl", text);
  RunStore store(folder.path());
  const json run = runs_of(store)[0];
  EXPECT_EQ(run["num_records"], count / 2 + 1);
  const json part = json::parse(store.records_json(0, run["generation"], 0));
  EXPECT_EQ(part["records"].size(), RunStore::kMaxRecordsPerAnswer);
  EXPECT_EQ(part["records"][0][1], 2);
  EXPECT_EQ(part["records"][3],
            json::array({"v", 7, 1.0, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr}));
  EXPECT_EQ(part["records"][4][1], 8);
}

}  // namespace
}  // namespace pentatron::monitor
