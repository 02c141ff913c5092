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
  store.read_all();
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

TEST(RunStore, NumbersCountInNames) {
  const TempFolder folder;
  const std::vector<std::string> expected{"lr01",  "lr1",    "lr2",   "lr10",
                                          "lr10b", "lr010c", "lr100", "run"};
  for (const std::string& name : expected) append(folder.path() / (name + ".jsonl"), train(1));
  RunStore store(folder.path());
  EXPECT_EQ(names_of(store), expected);
}

json series_of(RunStore& store, const RunStore::Wanted& wanted, SeriesRequest request) {
  request.fields = {kLossField};
  return json::parse(store.series_json({wanted}, std::move(request)))["runs"][0];
}

TEST(RunStore, SendsWhatIsNew) {
  const TempFolder folder;
  const fs::path file = folder.path() / "r.jsonl";
  append(file, train(1) + train(2));
  RunStore store(folder.path());
  EXPECT_EQ(runs_of(store)[0]["num_records"], 2);
  const json all = series_of(store, {.id = 0}, {});
  EXPECT_EQ(all["series"]["lm_loss"], json::parse("[1,2.5,2,2.5]"));
  EXPECT_EQ(all["since"], nullptr);
  append(file, train(3));
  store.read_all();
  const RunStore::Wanted known{
      .id = 0, .generation = all["generation"], .width = all["width"], .since = all["last"]};
  const json rest = series_of(store, known, {});
  EXPECT_EQ(rest["since"], 2);
  EXPECT_EQ(rest["series"]["lm_loss"], json::parse("[2,2.5,3,2.5]"));
  // Rewritten: what the reader holds is void.
  write_file_atomically(file, train(1));
  store.read_all();
  const json anew = series_of(store, known, {});
  EXPECT_NE(anew["generation"], all["generation"]);
  EXPECT_EQ(anew["since"], nullptr);
  EXPECT_EQ(anew["series"]["lm_loss"], json::parse("[1,2.5]"));
  for (const std::int64_t none : {-1, 1, 1000}) {
    EXPECT_EQ(json::parse(store.series_json({{.id = none}}, {}))["runs"].size(), 0U);
    EXPECT_EQ(store.about_json(none), "");
    EXPECT_FALSE(store.csv(none));
  }
}

TEST(RunStore, SamplesAndOptionsAreSentAsTheyAre) {
  const TempFolder folder;
  append(folder.path() / "r.jsonl",
         R"({"kind":"run","iteration":0,"train_iters":8,"options":{"lr":"<i>0.1</i>"}})"
         "\n"
         R"({"kind":"sample","iteration":2,"prompt":"<b>","text":"\"</script>"})"
         "\n");
  append(folder.path() / "r.jsonl", train(4));
  RunStore store(folder.path());
  const json run = runs_of(store)[0];
  EXPECT_EQ(run["train_iters"], 8);
  EXPECT_EQ(run["state"], "running");
  EXPECT_EQ(run["starts"], 1);
  const json about = json::parse(store.about_json(0));
  EXPECT_EQ(about["run"]["options"]["lr"], "<i>0.1</i>");
  EXPECT_EQ(about["samples"],
            json::parse(R"([{"iteration":2,"prompt":"<b>","text":"\"</script>"}])"));
  append(folder.path() / "r.jsonl", train(8));
  EXPECT_EQ(runs_of(store)[0]["state"], "finished");
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
  const json sets = series_of(store, {.id = 0}, {})["validation"];
  EXPECT_EQ(sets, json::parse(R"({"web":[4,2.5],"<b>code</b>":[4,2.5]})"));
  // A file cannot fill the page's key: beyond some sets no more are taken, the known ones go on.
  for (int i = 0; i < 1000; ++i) append(file, evaluated(std::to_string(i)));
  append(file, R"({"kind":"validation-web","iteration":5,"lm_loss":2})"
               "\n");
  store.read_all();
  const json more = series_of(store, {.id = 0}, {})["validation"];
  EXPECT_EQ(more.size(), RunData::kMaxSets);
  EXPECT_EQ(more["web"], json::parse("[4,2.5,5,2]"));
}

TEST(RunStore, NamesThatAreNoTextDoNotBreakTheAnswer) {
  const TempFolder folder;
  append(folder.path() / "a\xff<\"&.jsonl", train(1));
  RunStore store(folder.path());
  const json runs = runs_of(store);
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0]["name"], "a\xef\xbf\xbd<\"&");
}

TEST(RunStore, TheLongestRunIsThinnedOutAndItsSpikesStay) {
  const TempFolder folder;
  std::string text;
  for (std::int64_t i = 1; i <= 4000; ++i) {
    text += i == 777 ? R"({"kind":"train","iteration":777,"lm_loss":99})"
                       "\n"
                     : train(i);
  }
  append(folder.path() / "long.jsonl", text);
  append(folder.path() / "short.jsonl", train(1) + train(2));
  RunStore store(folder.path(), 1500);
  const json runs = runs_of(store);
  EXPECT_EQ(runs[0]["num_records"], 1000);
  EXPECT_EQ(runs[1]["num_records"], 2);
  EXPECT_EQ(runs[0]["iteration"], 4000);
  const std::string loss =
      series_of(store, {.id = 0}, {.num_buckets = 50})["series"]["lm_loss"].dump();
  EXPECT_NE(loss.find(",777,99,"), std::string::npos) << loss;
}

TEST(RunStore, CsvHasAllRowsInPieces) {
  const TempFolder folder;
  std::string text;
  for (std::int64_t i = 1; i <= 4500; ++i) text += train(i);
  text += R"({"kind":"validation-a,\"b\"","iteration":4500,"lm_loss":2.25})"
          "\n";
  append(folder.path() / "r.jsonl", text);
  RunStore store(folder.path());
  store.read_all();
  const auto next = store.csv(0);
  std::string table;
  std::size_t pieces = 0;
  for (std::string piece = next(); !piece.empty(); piece = next()) {
    table += piece;
    ++pieces;
  }
  EXPECT_EQ(pieces, 1 + 3);  // the head, and 4,501 rows
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 1 + 4500 + 1);
  EXPECT_TRUE(table.starts_with("kind,set,iteration,tokens,training_seconds,lm_loss,"));
  EXPECT_NE(table.find("\ntrain,,4500,0,0,2.5,"), std::string::npos);
  EXPECT_NE(table.find("\nvalidation,\"a,\"\"b\"\"\",4500,0,0,2.25,"), std::string::npos);
  const auto stopped = store.csv(0);
  (void)stopped();
  write_file_atomically(folder.path() / "r.jsonl", train(1));
  store.read_all();
  EXPECT_EQ(stopped(), "");
}

}  // namespace
}  // namespace pentatron::monitor
