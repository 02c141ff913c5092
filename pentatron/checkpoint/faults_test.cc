// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/checkpoint/open.h"
#include "pentatron/checkpoint/save_folder.h"
#include "pentatron/checkpoint/test_support.h"
#include "pentatron/checkpoint/verify.h"

// Damaged and foreign things in a --save folder.
namespace pentatron::checkpoint {
namespace {
namespace fs = std::filesystem;
using namespace testing_support;

void flip_byte(const fs::path& file) {
  std::string bytes = read_text_file(file);
  bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 1);
  write_text(file, bytes);
}

struct Damage {
  std::string name;
  std::string part;  // of the warning
  std::function<void(const fs::path&)> make;
};

const std::vector<Damage>& damages() {
  static const std::vector<Damage> kAll = {
      {"FlippedByte", "rank_00001.safetensors is damaged: its checksum is not the manifest's",
       [](const fs::path& f) { flip_byte(f / "rank_00001.safetensors"); }},
      {"ZeroFilled", "rank_00001.safetensors: the header",
       [](const fs::path& f) {
         const fs::path shard = f / "rank_00001.safetensors";
         write_text(shard, std::string(fs::file_size(shard), '\0'));
       }},
      {"MissingShard", "rank_00001.safetensors is missing",
       [](const fs::path& f) { fs::remove(f / "rank_00001.safetensors"); }},
      {"CutShard", "rank_00001.safetensors has 100 bytes",
       [](const fs::path& f) { fs::resize_file(f / "rank_00001.safetensors", 100); }},
      {"TornManifest", "manifest.json",
       [](const fs::path& f) {
         fs::resize_file(f / "manifest.json", fs::file_size(f / "manifest.json") / 2);
       }},
      {"PipeForManifest", "manifest.json is damaged: it is not a file",
       [](const fs::path& f) {
         fs::remove(f / "manifest.json");
         ASSERT_EQ(::mkfifo((f / "manifest.json").c_str(), 0600), 0);
       }},
      {"PipeForShard", "is not a regular file", [](const fs::path& f) {
         fs::remove(f / "rank_00001.safetensors");
         ASSERT_EQ(::mkfifo((f / "rank_00001.safetensors").c_str(), 0600), 0);
       }}};
  return kAll;
}

class DamagedNewest : public ::testing::TestWithParam<Damage> {};

// One rank and three, each with its share of the verifying: all load the same one.
TEST_P(DamagedNewest, F2_TheNewestThatVerifiesIsLoaded) {
  const TempFolder temp;
  for (const int i : {4, 8, 12}) save_layout(temp.path(), i, layouts()[1], i);
  GetParam().make(step(temp.path(), 12));
  const auto check = [&](const OpenedCheckpoint& opened) {
    EXPECT_EQ(opened.found.iteration, 8);
    EXPECT_NE(opened.found.note.find("iteration 12 does not verify"), std::string::npos);
    EXPECT_NE(opened.found.note.find(GetParam().part), std::string::npos) << opened.found.note;
    EXPECT_NE(opened.found.note.find("using iteration 8"), std::string::npos) << opened.found.note;
    ASSERT_TRUE(opened.reader);
    EXPECT_EQ(opened.reader->manifest().iteration, 8);
  };
  check(open_checkpoint(temp.path(), 0));
  comm::run_threads({.world_size = 3}, [&](comm::Backend& backend) {
    const std::unique_ptr<comm::Group> world = backend.make_group({0, 1, 2}, "world");
    check(open_checkpoint(temp.path(), 0, *world));
  });
  expect_error(ErrorKind::kCheckpoint, "--ckpt-step 12 cannot be used",
               [&] { (void)open_checkpoint(temp.path(), 12); });
  EXPECT_EQ(open_checkpoint(temp.path(), 8).found.iteration, 8);
  for (const int i : {4, 8}) flip_byte(step(temp.path(), i) / "rank_00000.safetensors");
  expect_error(ErrorKind::kCheckpoint, "nothing in it can be loaded",
               [&] { (void)open_checkpoint(temp.path(), 0); });
  // F3: what is asked about is the newest, whatever its state.
  EXPECT_EQ(newest_checkpoint(temp.path(), 0).iteration, 12);
  EXPECT_FALSE(verify_checkpoint(newest_checkpoint(temp.path(), 0).folder).ok);
}

INSTANTIATE_TEST_SUITE_P(Faults, DamagedNewest, ::testing::ValuesIn(damages()),
                         [](const auto& info) { return info.param.name; });

TEST(Faults, F2_RanksOfDifferentFoldersAreRefused) {
  const TempFolder temp;
  save_layout(temp.path(), 4, layouts()[1], 1);
  expect_error(ErrorKind::kConfig, "differ in what they find", [&] {
    comm::run_threads({.world_size = 2}, [&](comm::Backend& backend) {
      const std::unique_ptr<comm::Group> world = backend.make_group({0, 1}, "world");
      const fs::path root = backend.rank() == 0 ? temp.path() : temp.path() / "elsewhere";
      (void)open_checkpoint(root, 0, *world);
    });
  });
}

TEST(Faults, F3_TheNewestIsTheTrackers) {
  const TempFolder temp;
  expect_error(ErrorKind::kCheckpoint, "no checkpoint there",
               [&] { (void)newest_checkpoint(temp.path(), 0); });
  for (const int i : {4, 8}) (void)save_single(temp.path(), i, i);
  EXPECT_EQ(newest_checkpoint(temp.path(), 0).iteration, 8);
  EXPECT_EQ(newest_checkpoint(temp.path(), 4).folder, step(temp.path(), 4));
  write_text(temp.path() / kTrackerName, "4");
  EXPECT_EQ(newest_checkpoint(temp.path(), 0).iteration, 4);
  write_text(temp.path() / kTrackerName, "");
  EXPECT_EQ(newest_checkpoint(temp.path(), 0).iteration, 8);
  write_text(temp.path() / kTrackerName, "12");
  expect_error(ErrorKind::kCheckpoint, "names 12, which is not there (there: 4, 8)",
               [&] { (void)newest_checkpoint(temp.path(), 0); });
  expect_error(ErrorKind::kCheckpoint, "--ckpt-step asks for 5",
               [&] { (void)newest_checkpoint(temp.path(), 5); });
}

// The tracker as a pipe: said, not waited for (A14).
TEST(Faults, A14_ATrackerThatIsAPipe) {
  const TempFolder temp;
  (void)save_single(temp.path(), 4, 1);
  fs::remove(temp.path() / kTrackerName);
  ASSERT_EQ(::mkfifo((temp.path() / kTrackerName).c_str(), 0600), 0);
  const Found found = find_checkpoint(temp.path(), 0);
  EXPECT_EQ(found.iteration, 4);
  EXPECT_NE(found.note.find("is not a file"), std::string::npos) << found.note;
}

TEST(Faults, F4_AForeignFolderIsSetAside) {
  const TempFolder temp;
  write_text(step(temp.path(), 4) / "model.safetensors", "weights of another program");
  write_text(step(temp.path(), 8) / "manifest.json", "{\"name\":\"not ours\"}");
  write_text(step(temp.path(), 8) / "data.bin", "x");
  (void)save_single(temp.path(), 4, 1);
  (void)save_single(temp.path(), 8, 2);
  EXPECT_EQ(list_iterations(temp.path()), (std::vector<std::int64_t>{4, 8}));
  EXPECT_EQ(read_text_file(temp.path() / "iter_0000004.set_aside_1" / "model.safetensors"),
            "weights of another program");
  EXPECT_EQ(read_text_file(temp.path() / "iter_0000008.set_aside_1" / "data.bin"), "x");
  // Saved once more: ours is replaced as ever, theirs stays, and so it does at a removal.
  (void)save_single(temp.path(), 4, 3);
  (void)save_single(temp.path(), 12, 4, 1);
  EXPECT_EQ(list_iterations(temp.path()), (std::vector<std::int64_t>{12}));
  EXPECT_TRUE(fs::exists(temp.path() / "iter_0000004.set_aside_1" / "model.safetensors"));
  EXPECT_TRUE(fs::exists(temp.path() / "iter_0000008.set_aside_1" / "data.bin"));
}

TEST(Faults, F4_ADamagedOneOfOursIsReplaced) {
  const TempFolder temp;
  for (const auto& damage : damages()) {
    SCOPED_TRACE(damage.name);
    fs::remove_all(temp.path() / "run");
    save_layout(temp.path() / "run", 4, layouts()[1], 1);
    damage.make(step(temp.path() / "run", 4));
    save_layout(temp.path() / "run", 4, layouts()[1], 2);
    EXPECT_TRUE(verify_checkpoint(step(temp.path() / "run", 4)).ok);
    EXPECT_EQ(std::distance(fs::directory_iterator(temp.path() / "run"), {}), 2);
  }
}

TEST(Faults, F4_ForeignThingsUnderNamesOfOurs) {
  const TempFolder temp;
  write_text(temp.path() / ".old_iter_0000004" / "notes.txt", "theirs");
  (void)save_single(temp.path(), 4, 1);
  (void)save_single(temp.path(), 4, 2);
  EXPECT_EQ(read_text_file(temp.path() / ".old_iter_0000004.set_aside_1" / "notes.txt"), "theirs");
  EXPECT_EQ(find_checkpoint(temp.path(), 0).iteration, 4);
}

TEST(Faults, F16_AFileNamedAsAnIteration) {
  const TempFolder temp;
  (void)save_single(temp.path(), 2, 1);
  write_text(step(temp.path(), 4), "a letter");
  write_text(temp.path() / kTrackerName, "4");
  const Found found = find_checkpoint(temp.path(), 0);
  EXPECT_EQ(found.iteration, 2);
  EXPECT_NE(found.note.find("iter_0000004 is not a folder"), std::string::npos) << found.note;
  (void)save_single(temp.path(), 4, 2);
  EXPECT_EQ(find_checkpoint(temp.path(), 0).iteration, 4);
  EXPECT_EQ(read_text_file(temp.path() / "iter_0000004.set_aside_1"), "a letter");
}

TEST(Faults, F16_LinksStayAndWhatTheyLeadToToo) {
  const TempFolder temp;
  const fs::path root = temp.path() / "run";
  (void)save_single(root, 2, 1);
  // Moved to another disk, with a link in its place; and a link to nothing.
  fs::rename(step(root, 2), temp.path() / "archive");
  fs::create_directory_symlink(temp.path() / "archive", step(root, 2));
  fs::create_symlink(temp.path() / "nothing", step(root, 6));
  // The tracker too may be a link.
  fs::rename(root / kTrackerName, temp.path() / "tracker");
  fs::create_symlink(temp.path() / "tracker", root / kTrackerName);
  EXPECT_EQ(find_checkpoint(root, 0).iteration, 2);
  (void)save_single(root, 4, 2);
  EXPECT_TRUE(fs::is_symlink(root / kTrackerName));
  EXPECT_EQ(read_text_file(temp.path() / "tracker"), "4");
  (void)save_single(root, 5, 3, 1);  // keeps one: the linked one is not this run's to remove
  EXPECT_TRUE(verify_checkpoint(temp.path() / "archive").ok);
  (void)save_single(root, 2, 4);
  EXPECT_TRUE(verify_checkpoint(temp.path() / "archive").ok);
  EXPECT_TRUE(fs::is_symlink(root / "iter_0000002.set_aside_1"));
  EXPECT_FALSE(fs::is_symlink(step(root, 2)));
  (void)save_single(root, 6, 5);
  EXPECT_TRUE(verify_checkpoint(step(root, 6)).ok);
  EXPECT_TRUE(fs::is_symlink(root / "iter_0000006.set_aside_1"));
}

TEST(Faults, F11_WhatCannotBeASaveFolder) {
  const TempFolder temp;
  write_text(temp.path() / "file", "x");
  fs::create_symlink(temp.path() / "nothing", temp.path() / "link");
  const auto refused = [&](ErrorKind kind, const fs::path& root, std::string_view part) {
    expect_error(kind, part, [&] { prepare_save_folder(root); });
    comm::run_threads({.world_size = 2}, [&](comm::Backend& backend) {
      const std::unique_ptr<comm::Group> world = backend.make_group({0, 1}, "world");
      expect_error(kind, part, [&] { (void)open_save_folder(root, *world); });
    });
  };
  refused(ErrorKind::kConfig, temp.path() / "file", "this is a file, expected a folder");
  refused(ErrorKind::kConfig, temp.path() / "link", "which is not there");
  refused(ErrorKind::kIo, temp.path() / "file" / "below", "cannot create folder");
  EXPECT_EQ(read_text_file(temp.path() / "file"), "x");
  // A link to a folder is one.
  fs::create_directory(temp.path() / "nothing");
  prepare_save_folder(temp.path() / "link");
  prepare_save_folder(temp.path() / "new" / "deep");
  EXPECT_TRUE(fs::is_directory(temp.path() / "new" / "deep"));
}

TEST(Faults, F11_RoomIsAskedForAtTheStart) {
  const TempFolder temp;
  check_room(temp.path(), 1);
  const std::uintmax_t free = fs::space(temp.path()).available;
  expect_error(ErrorKind::kIo, "its file system has room for", [&] {
    check_room(temp.path(), static_cast<std::uint64_t>(free) * 2 + (std::uint64_t{1} << 40));
  });
}

}  // namespace
}  // namespace pentatron::checkpoint
