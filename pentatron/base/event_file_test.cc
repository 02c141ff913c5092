// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/event_file.h"

#include <gtest/gtest.h>

#include <ctime>

#include "pentatron/base/event_file_test_support.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"

namespace pentatron {
namespace {

TEST(EventFile, HoldsWhatWasAdded) {
  const TempFolder folder;
  std::filesystem::path path;
  const auto before = static_cast<double>(std::time(nullptr));
  {
    EventFile file(folder.path() / "deep" / "er", 1000);
    path = file.path();
    file.scalar("lm loss", 2.5, 7);
    file.scalar("lm loss vs samples", -1e-30, 1LL << 40);
    file.text("lr", "0.01 <b>", 3);
  }
  EXPECT_EQ(path.parent_path(), folder.path() / "deep" / "er");
  EXPECT_TRUE(path.filename().string().starts_with("events.out.tfevents.")) << path;
  const std::vector<ReadEvent> events = read_event_file(path);
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[1].tag, "lm loss");
  EXPECT_EQ(events[1].value, 2.5F);
  EXPECT_EQ(events[1].step, 7);
  EXPECT_GE(events[1].wall_time, before);
  EXPECT_LT(events[1].wall_time, before + 600);
  EXPECT_EQ(events[2].value, -1e-30F);
  EXPECT_EQ(events[2].step, 1LL << 40);
  EXPECT_EQ(events[3].tag, "lr/text_summary");
  EXPECT_EQ(events[3].text, "0.01 <b>");
  EXPECT_EQ(events[3].plugin, "text");
  EXPECT_EQ(events[3].step, 3);
}

TEST(EventFile, RecordsAreFramedByMaskedChecksums) {
  // Of the payload "abc": length 3, both sums worked out by a bitwise CRC-32C apart from ours.
  const std::string record = event_record("abc");
  ASSERT_EQ(record.size(), 8 + 4 + 3 + 4U);
  EXPECT_EQ(record.substr(0, 8), std::string("\3\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 3), "abc");
  const auto sum_at = [&](std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, record.data() + at, sizeof(value));
    return value;
  };
  EXPECT_EQ(sum_at(8), 0x0E4999B0U);
  EXPECT_EQ(sum_at(15), 0x21F1576EU);
}

TEST(EventFile, EventsWaitUntilTheQueueIsFull) {
  const TempFolder folder;
  EventFile file(folder.path(), 3);
  const auto count = [&] { return read_event_file(file.path()).size(); };
  EXPECT_EQ(count(), 1U);  // the version
  file.scalar("a", 1, 1);
  file.scalar("a", 2, 2);
  EXPECT_EQ(count(), 1U);
  file.scalar("a", 3, 3);
  EXPECT_EQ(count(), 4U);
  file.scalar("a", 4, 4);
  EXPECT_EQ(count(), 4U);
  file.flush();
  EXPECT_EQ(count(), 5U);
}

TEST(EventFile, FilesOfOneFolderHaveTheirOwnNames) {
  const TempFolder folder;
  const EventFile first(folder.path(), 1);
  const EventFile second(folder.path(), 1);
  EXPECT_NE(first.path(), second.path());
  for (const EventFile* file : {&first, &second}) {
    EXPECT_EQ(read_event_file(file->path()).size(), 1U);
  }
}

TEST(EventFile, AFolderThatCannotBeMadeIsAnError) {
  const TempFolder folder;
  write_file_atomically(folder.path() / "file", "x");
  expect_error(ErrorKind::kIo, "file",
               [&] { const EventFile file(folder.path() / "file" / "events", 1); });
}

}  // namespace
}  // namespace pentatron
