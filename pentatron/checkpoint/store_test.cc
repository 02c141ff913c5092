// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <random>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/checkpoint/inspect.h"
#include "pentatron/checkpoint/retention.h"
#include "pentatron/checkpoint/test_support.h"
#include "pentatron/checkpoint/verify.h"

namespace pentatron::checkpoint {
namespace {
namespace fs = std::filesystem;
using namespace testing_support;

void flip_bit(const fs::path& path, std::uint64_t bit) {
  std::string bytes = read_text_file(path);
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1U << bit % 8));
  write_text(path, bytes);
}

void expect_refused(const fs::path& root, std::string_view part, std::int64_t ckpt_step = 0) {
  expect_error(ErrorKind::kCheckpoint, part, [&] { (void)find_checkpoint(root, ckpt_step); });
}

TEST(Find, NothingThere) {
  const TempFolder temp;
  EXPECT_EQ(find_checkpoint(temp.path() / "absent", 0).result, FindResult::kNothingThere);
  EXPECT_EQ(find_checkpoint(temp.path(), 0).result, FindResult::kNothingThere);
  // The first save was killed; logs lie beside.
  write_text(temp.path() / ".saving_iter_0000010" / "rank_00000.safetensors", "x");
  write_text(temp.path() / "log.txt", "x");
  EXPECT_EQ(find_checkpoint(temp.path(), 0).result, FindResult::kNothingThere);
  expect_refused(temp.path(), "--ckpt-step 5", 5);
  write_text(temp.path() / "file", "x");
  expect_refused(temp.path() / "file", "is not a folder");
}

TEST(Find, TrackerThenNewest) {
  const TempFolder temp;
  for (const int i : {5, 10, 20}) (void)save_single(temp.path(), i, i);
  Found found = find_checkpoint(temp.path(), 0);
  EXPECT_EQ(found.iteration, 20);
  EXPECT_EQ(found.note, "");
  EXPECT_EQ(find_checkpoint(temp.path(), 10).iteration, 10);
  expect_refused(temp.path(), "there: 5, 10, 20", 15);
  expect_refused(step(temp.path(), 10), "is the folder of one iteration");

  const fs::path tracker = temp.path() / kTrackerName;
  write_text(tracker, " 10\n");
  EXPECT_EQ(find_checkpoint(temp.path(), 0).iteration, 10);
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "is empty"},
      {"garbage", "'garbage'"},
      {"-3", "'-3'"},
      {"12", "names iteration 12, which is not there"},
      {"99999999999999999999", "says"},
      {"10 20", "says"},
      {std::string(9000, '1'), "9000 bytes"},
      {std::string("1\0", 2), "says"}};
  for (const auto& [text, note] : bad) {
    write_text(tracker, text);
    found = find_checkpoint(temp.path(), 0);
    EXPECT_EQ(found.iteration, 20) << text;
    EXPECT_NE(found.note.find(note), std::string::npos) << found.note;
    EXPECT_NE(found.note.find("using iteration 20"), std::string::npos) << found.note;
  }
  fs::remove(tracker);
  EXPECT_EQ(find_checkpoint(temp.path(), 0).iteration, 20);
  EXPECT_NE(find_checkpoint(temp.path(), 0).note, "");
  for (const int i : {5, 10, 20}) fs::remove_all(step(temp.path(), i));
  write_text(tracker, "");
  expect_refused(temp.path(), "nothing in it can be loaded");
}

TEST(Find, DamagedIsPassedOverLoudly) {
  const TempFolder temp;
  for (const int i : {5, 10, 20, 30}) (void)save_single(temp.path(), i, i);
  write_text(temp.path() / kTrackerName, "20");
  const fs::path shard = step(temp.path(), 20) / "rank_00000.safetensors";
  fs::resize_file(shard, fs::file_size(shard) - 1);
  Found found = find_checkpoint(temp.path(), 0);
  EXPECT_EQ(found.iteration, 10);
  EXPECT_NE(found.note.find("iteration 20 does not verify"), std::string::npos) << found.note;
  expect_refused(temp.path(), "the manifest says", 20);
  flip_bit(step(temp.path(), 10) / "manifest.json", 800);
  fs::remove(step(temp.path(), 5) / "rank_00000.safetensors");
  found = find_checkpoint(temp.path(), 0);
  EXPECT_EQ(found.iteration, 30);
  fs::remove(step(temp.path(), 30) / "manifest.json");
  expect_refused(temp.path(), "nothing in it can be loaded");
  EXPECT_TRUE(list_iterations(temp.path()).empty());
}

TEST(Find, FolderUnderAnotherNumberIsRefused) {
  const TempFolder temp;
  (void)save_single(temp.path(), 5, 1);
  fs::rename(step(temp.path(), 5), step(temp.path(), 6));
  expect_refused(temp.path(), "holds iteration 5", 6);
}

TEST(Find, MegatronsFormatsAreNamed) {
  const auto refused = [](const std::vector<std::pair<std::string, std::string>>& files,
                          std::string_view part) {
    const TempFolder temp;
    for (const auto& [name, text] : files) write_text(temp.path() / name, text);
    expect_refused(temp.path(), part);
    expect_refused(temp.path(), "start a new run with an empty --save folder");
  };
  const std::string tracker = kTrackerName;
  refused({{tracker, "10"}, {"iter_0000010/mp_rank_00/model_optim_rng.pt", "x"}}, "legacy format");
  refused({{tracker, "10"}, {"iter_0000010/.metadata", "x"}, {"iter_0000010/__0_0.distcp", "x"}},
          "torch_dist format");
  refused({{tracker, "10"}, {"iter_0000010/common.pt", "x"}}, "torch_dist format (common.pt)");
  refused({{"iter_0000010/metadata.json", "{}"}}, "metadata.json");
  refused({{tracker, "release"}, {"release/mp_rank_00/model_optim_rng.pt", "x"}}, "release format");
  refused({{"release/mp_rank_00/model_optim_rng.pt", "x"}}, "release format");
  refused({{"mp_rank_00/model_optim_rng.pt", "x"}}, "legacy format");
  // A mixed folder: the tracker's choice is theirs, so nothing older is taken instead.
  const TempFolder temp;
  (void)save_single(temp.path(), 5, 1);
  write_text(temp.path() / "iter_0000010/common.pt", "x");
  write_text(temp.path() / kTrackerName, "10");
  expect_refused(temp.path(), "torch_dist format");
  EXPECT_EQ(find_checkpoint(temp.path(), 5).iteration, 5);
}

TEST(Find, ReplacementThatStoppedBetweenItsRenames) {
  const TempFolder temp;
  (void)save_single(temp.path(), 10, 1);
  const std::string hash = hash_of(step(temp.path(), 10));
  fs::rename(step(temp.path(), 10), temp.path() / ".old_iter_0000010");
  fs::create_directory(temp.path() / ".saving_iter_0000010");
  const Found found = find_checkpoint(temp.path(), 0);
  EXPECT_EQ(found.iteration, 10);
  EXPECT_EQ(hash_of(found.folder), hash);
  EXPECT_NE(found.note.find("was stopped"), std::string::npos);
  remove_unfinished(temp.path());
  EXPECT_EQ(find_checkpoint(temp.path(), 0).note, "");
  EXPECT_EQ(hash_of(step(temp.path(), 10)), hash);
  EXPECT_EQ(std::distance(fs::directory_iterator(temp.path()), {}), 2);
}

TEST(Retention, KeepsNewestMultiplesProtectedAndTracked) {
  const TempFolder temp;
  for (int i = 1; i <= 9; ++i) (void)save_single(temp.path(), i, i);
  write_text(temp.path() / kTrackerName, "3");
  write_text(step(temp.path(), 1) / "manifest.json", "damaged");  // stays: evidence
  fs::remove(step(temp.path(), 2) / "manifest.json");             // the rest of a removal
  write_text(temp.path() / "iter_0000000" / "common.pt", "x");    // somebody else's
  apply_retention(temp.path(), 0, 0, -1);
  EXPECT_EQ(list_iterations(temp.path()).size(), 7U);
  apply_retention(temp.path(), 2, 4, 5);
  EXPECT_EQ(list_iterations(temp.path()), std::vector<std::int64_t>({3, 4, 5, 8, 9}));
  EXPECT_TRUE(fs::exists(step(temp.path(), 1)));
  EXPECT_FALSE(fs::exists(step(temp.path(), 2)));
  EXPECT_TRUE(fs::exists(temp.path() / "iter_0000000" / "common.pt"));
  // Saved with a limit, below what is there already: the one just saved stays.
  (void)save_single(temp.path(), 6, 6, 1);
  EXPECT_EQ(list_iterations(temp.path()), std::vector<std::int64_t>({6, 9}));
  EXPECT_EQ(find_checkpoint(temp.path(), 0).iteration, 6);
}

TEST(Verify, EveryFlippedBitIsFound) {
  const TempFolder temp;
  save_layout(temp.path(), 7, layouts()[6], 1);
  const fs::path folder = step(temp.path(), 7);
  std::mt19937_64 random(5);
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path file = entry.path();
    for (int round = 0; round < 60; ++round) {
      const std::uint64_t bit = random() % (entry.file_size() * 8);
      flip_bit(file, bit);
      EXPECT_FALSE(verify_checkpoint(folder).ok) << file << " bit " << bit;
      expect_error(ErrorKind::kCheckpoint, file.string(), [&] { (void)hash_of(folder); });
      flip_bit(file, bit);
    }
  }
  EXPECT_TRUE(verify_checkpoint(folder).ok);
}

TEST(Verify, DamagedFilesAreNamed) {
  const TempFolder temp;
  save_layout(temp.path() / "good", 7, layouts()[6], 1);
  const std::string first = "rank_00000.safetensors";
  const std::string second = "rank_00001.safetensors";
  const auto damaged = [&](const std::function<void(const fs::path&)>& damage,
                           std::string_view part, std::size_t problems) {
    const fs::path copy = temp.path() / "copy";
    fs::remove_all(copy);
    fs::copy(step(temp.path() / "good", 7), copy, fs::copy_options::recursive);
    damage(copy);
    const VerifyReport report = verify_checkpoint(copy);
    EXPECT_EQ(report.ok, problems == 0);
    ASSERT_EQ(report.problems.size(), problems);
    if (problems == 0) return;
    EXPECT_NE(report.problems[0].find(part), std::string::npos) << report.problems[0];
    expect_error(ErrorKind::kCheckpoint, part, [&] { (void)hash_of(copy); });
  };
  damaged([&](const fs::path& f) { fs::resize_file(f / first, 100); }, "has 100 bytes", 1);
  damaged([&](const fs::path& f) { fs::resize_file(f / first, 0); }, "has 0 bytes", 1);
  damaged([&](const fs::path& f) { fs::remove(f / first); }, first + " is missing", 1);
  damaged(
      [&](const fs::path& f) {
        fs::rename(f / first, f / "third");
        fs::rename(f / second, f / first);
        fs::rename(f / "third", f / second);
      },
      "is damaged", 2);
  damaged(
      [&](const fs::path& f) {
        fs::rename(f / first, temp.path() / "elsewhere");
        fs::create_symlink(temp.path() / "elsewhere", f / first);
      },
      "links are not followed", 1);
  damaged([&](const fs::path& f) { fs::remove(f / "manifest.json"); }, "no manifest.json", 1);
  damaged([&](const fs::path& f) { write_text(f / "manifest.json", ""); }, "manifest.json", 1);
  damaged([&](const fs::path& f) { write_text(f / "rank_00009.safetensors", "stale"); }, "", 0);
  EXPECT_FALSE(verify_checkpoint(temp.path() / "absent").ok);
}

TEST(Verify, InspectShowsTensors) {
  const TempFolder temp;
  (void)save_single(temp.path(), 7, 1);
  const std::string text = inspect_checkpoint(step(temp.path(), 7));
  for (const char* part : {"iteration   7, saved 20", "\ncube ", "[4, 5, 3]", "BF16",
                           "layout      name one rank", "files       1, "}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_EQ(text.find("\"name\""), std::string::npos) << text;
  const nlohmann::json json = nlohmann::json::parse(inspect_checkpoint_json(step(temp.path(), 7)));
  EXPECT_EQ(json.at("iteration"), 7);
  EXPECT_EQ(json.at("tensors").size(), 6U);
  EXPECT_EQ(json.at("layout").at("name"), "one rank");
  std::int64_t elements = 0;
  for (const nlohmann::json& tensor : json.at("tensors")) {
    if (tensor.at("name") == "param/cube") {
      EXPECT_EQ(tensor.at("elements"), 60);
    }
    if (tensor.at("name").get<std::string>().starts_with("param/")) {
      elements += tensor.at("elements").get<std::int64_t>();
    }
  }
  EXPECT_EQ(json.at("parameters"), elements);
}

}  // namespace
}  // namespace pentatron::checkpoint
