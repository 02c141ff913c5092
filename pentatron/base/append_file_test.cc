// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/append_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"

namespace pentatron {
namespace {

void write(AppendFile& file, std::string_view text) {
  file.write(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

std::string read(const AppendFile& file, std::uint64_t offset, std::size_t size) {
  std::string text(size, '\0');
  file.read(offset, std::as_writable_bytes(std::span<char>(text)));
  return text;
}

TEST(AppendFile, ScratchSpaceHasNoName) {
  const TempFolder folder;
  AppendFile file = AppendFile::scratch(folder.path());
  write(file, "abc");
  write(file, "defg");
  EXPECT_EQ(file.size(), 7U);
  EXPECT_EQ(read(file, 2, 4), "cdef");
  EXPECT_THROW((void)read(file, 4, 4), Error);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(AppendFile, ContinuesAfterWhatIsKnown) {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "a";
  {
    AppendFile file = AppendFile::continued(path, 0);
    write(file, "known, then not");
    file.sync();
  }
  {
    AppendFile file = AppendFile::continued(path, 5);
    EXPECT_EQ(file.size(), 5U);
    write(file, "!");
    EXPECT_EQ(read(file, 0, 6), "known!");
  }
  EXPECT_EQ(read_text_file(path), "known!");
  try {
    (void)AppendFile::continued(path, 7);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_NE(std::string(error.what()).find("6 bytes; 7"), std::string::npos) << error.what();
  }
}

TEST(AppendFile, MissingFolderIsNamed) {
  EXPECT_THROW((void)AppendFile::continued("no/such/folder/a", 0), Error);
  EXPECT_THROW((void)AppendFile::scratch("no/such/folder"), Error);
}

}  // namespace
}  // namespace pentatron
