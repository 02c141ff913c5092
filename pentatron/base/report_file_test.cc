// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/report_file.h"

#include "pentatron/base/file.h"
#include "pentatron/base/file_limit_test_support.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"

namespace pentatron {
namespace {

TEST(ReportFile, A14_RecordsAreWholeOrLeftOut) {
  const TempFolder folder;
  const auto path = folder.path() / "reports";
  ReportFile file(path, "--metrics-file");
  EXPECT_TRUE(file.append("first record\n"));
  {
    const LargestFile full(20);
    EXPECT_FALSE(file.append("second record\n"));  // seven bytes of it would fit
    EXPECT_EQ(read_text_file(path), "first record\n");
    EXPECT_FALSE(file.append("third record\n"));
    EXPECT_TRUE(file.append("short\n"));
    EXPECT_FALSE(file.append("fifth\n"));
  }
  EXPECT_TRUE(file.append("last record\n"));
  EXPECT_EQ(read_text_file(path), "first record\nshort\nlast record\n");
}

TEST(ReportFile, GoesOnAtTheEnd) {
  const TempFolder folder;
  const auto path = folder.path() / "reports";
  write_file_atomically(path, "a");
  EXPECT_TRUE(ReportFile(path, "--metrics-file").append("b"));
  EXPECT_EQ(read_text_file(path), "ab");
  expect_error(ErrorKind::kIo, "--metrics-file",
               [&] { const ReportFile below(path / "below", "--metrics-file"); });
}

}  // namespace
}  // namespace pentatron
