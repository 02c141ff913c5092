// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"

namespace pentatron::training {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::int64_t> iterations(const std::filesystem::path& path, const std::string& kind) {
  std::vector<std::int64_t> result;
  for (const MetricsPoint& point : read_metrics(path, kind, "lm_loss")) {
    result.push_back(point.iteration);
  }
  return result;
}

void write_iterations(const std::filesystem::path& path, std::int64_t resume, std::int64_t end) {
  MetricsFile file(path, resume);
  for (std::int64_t i = resume + 1; i <= end; ++i) {
    file.write("train", i, {{"lm_loss", 1.0 / static_cast<double>(i)}});
  }
}

TEST(Metrics, FullPrecisionAndOneLineEach) {
  const TempFolder folder;
  const auto path = folder.path() / "deep" / "metrics.jsonl";  // the folder is made
  const double third = 1.0 / 3.0;
  {
    MetricsFile file(path, 0);
    file.write("train", 1, {{"lm_loss", third}, {"grad_norm", 1e-300}});
    // Flushed at once: read while the writer lives.
    ASSERT_EQ(read_metrics(path, "train", "lm_loss").size(), 1U);
    file.write("validation", 1, {{"lm_loss", 2.0}});
  }
  const std::vector<MetricsPoint> loss = read_metrics(path, "train", "lm_loss");
  ASSERT_EQ(loss.size(), 1U);
  EXPECT_EQ(loss[0].iteration, 1);
  EXPECT_EQ(loss[0].value, third);  // to the last bit
  EXPECT_EQ(read_metrics(path, "train", "grad_norm").at(0).value, 1e-300);
  EXPECT_EQ(read_metrics(path, "validation", "lm_loss").at(0).value, 2.0);
  EXPECT_TRUE(read_metrics(path, "test", "lm_loss").empty());
  EXPECT_TRUE(read_metrics(path, "train", "unknown").empty());
}

TEST(Metrics, ResumeDropsWhatCameAfterTheCheckpoint) {
  const TempFolder folder;
  const auto disturbed = folder.path() / "disturbed.jsonl";
  write_iterations(disturbed, 0, 9);
  write_iterations(disturbed, 5, 8);  // killed after 9, resumed from 5
  const auto undisturbed = folder.path() / "undisturbed.jsonl";
  write_iterations(undisturbed, 0, 8);
  EXPECT_EQ(read_text_file(disturbed), read_text_file(undisturbed));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "disturbed.jsonl.1"));
}

TEST(Metrics, EvaluationsAfterTrainingAreWrittenAnew) {
  const TempFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  for (const std::int64_t resume : {0, 2}) {  // the second time the finished run is started again
    MetricsFile file(path, resume);
    for (std::int64_t i = resume + 1; i <= 2; ++i) file.write("train", i, {{"lm_loss", 1.0}});
    if (resume == 0) file.write("validation", 2, {{"lm_loss", 2.0}});
    file.write("validation", 2, {{"lm_loss", 3.0}, {"final", 1.0}});
  }
  EXPECT_EQ(iterations(path, "train"), (std::vector<std::int64_t>{1, 2}));
  const std::vector<MetricsPoint> validation = read_metrics(path, "validation", "lm_loss");
  ASSERT_EQ(validation.size(), 2U);
  EXPECT_EQ(validation[0].value, 2.0);
  EXPECT_EQ(validation[1].value, 3.0);
}

TEST(Metrics, TornLastLineIsLeftOutAndReplaced) {
  const TempFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  write_iterations(path, 0, 3);
  std::ofstream(path, std::ios::app) << R"({"iteration":4,"kind":"tra)";
  EXPECT_EQ(iterations(path, "train"), (std::vector<std::int64_t>{1, 2, 3}));
  write_iterations(path, 3, 4);
  EXPECT_EQ(iterations(path, "train"), (std::vector<std::int64_t>{1, 2, 3, 4}));
}

// A third run from scratch lost the first one's numbers.
TEST(Metrics, FromScratchKeepsEveryOlderFile) {
  const TempFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  std::vector<std::string> written;
  testing::internal::CaptureStderr();
  for (const std::int64_t end : {3, 2, 5, 1}) {
    write_iterations(path, 0, end);
    written.push_back(read_text_file(path));
  }
  const std::string said = testing::internal::GetCapturedStderr();
  for (std::size_t i = 0; i + 1 < written.size(); ++i) {
    const std::string backup = path.string() + "." + std::to_string(i + 1);
    EXPECT_EQ(read_text_file(backup), written[i]);
    EXPECT_NE(said.find("held another run: kept as " + backup), std::string::npos) << said;
  }
  EXPECT_EQ(iterations(path, "train"), (std::vector<std::int64_t>{1}));
  // A run that goes on keeps its own file.
  write_iterations(path, 1, 2);
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".4"));
}

TEST(Metrics, ValuesThatAreNotFiniteAreTexts) {
  const TempFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  {
    MetricsFile file(path, 0);
    file.write("train", 1, {{"lm_loss", kNan}});
    file.write("train", 2, {{"lm_loss", HUGE_VAL}});
    file.write("train", 3, {{"lm_loss", -HUGE_VAL}});
  }
  // Still JSON: no bare NaN.
  EXPECT_EQ(read_text_file(path),
            "{\"iteration\":1,\"kind\":\"train\",\"lm_loss\":\"nan\"}\n"
            "{\"iteration\":2,\"kind\":\"train\",\"lm_loss\":\"inf\"}\n"
            "{\"iteration\":3,\"kind\":\"train\",\"lm_loss\":\"-inf\"}\n");
  const std::vector<MetricsPoint> points = read_metrics(path, "train", "lm_loss");
  ASSERT_EQ(points.size(), 3U);
  EXPECT_TRUE(std::isnan(points[0].value));
  EXPECT_EQ(points[1].value, HUGE_VAL);
  EXPECT_EQ(points[2].value, -HUGE_VAL);
}

TEST(Metrics, OtherFilesAreRefused) {
  const TempFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  for (const char* line :
       {"hello", "", "{}", "[1]", "{\"iteration\":\"x\"}", "{\"iteration\":1.5}"}) {
    std::ofstream(path) << line << "\n" << line << "\n";
    expect_error(ErrorKind::kData, "metrics.jsonl:1",
                 [&] { (void)read_metrics(path, "train", "lm_loss"); });
    // A file that is not ours is not thrown away on resume.
    const std::string before = read_text_file(path);
    expect_error(ErrorKind::kData, "is this a metrics file?", [&] { MetricsFile(path, 5); });
    EXPECT_EQ(read_text_file(path), before);
  }
  std::ofstream(path) << "{\"iteration\":1,\"kind\":7,\"lm_loss\":1}\n";
  EXPECT_TRUE(read_metrics(path, "train", "lm_loss").empty());
}

TEST(Metrics, F15_DamagedLinesArePassedOver) {
  for (const char* line : {"hello", "", "{}", "[1]", "{\"iteration\":1.5}", "{\"itera\0\xff"}) {
    const TempFolder folder;
    const auto path = folder.path() / "metrics.jsonl";
    const auto undisturbed = folder.path() / "undisturbed.jsonl";
    write_iterations(path, 0, 3);
    std::ofstream(path, std::ios::app) << line << "\n";
    const std::string before = read_text_file(path);
    EXPECT_EQ(iterations(path, "train"), (std::vector<std::int64_t>{1, 2, 3}));
    write_iterations(path, 3, 4);
    write_iterations(undisturbed, 0, 4);
    EXPECT_EQ(read_text_file(path), read_text_file(undisturbed));
    // Nothing is thrown away.
    EXPECT_EQ(read_text_file(folder.path() / "metrics.jsonl.damaged_1"), before);
  }
}

TEST(Metrics, F16_ALinkStaysALink) {
  const TempFolder folder;
  const auto link = folder.path() / "link.jsonl";
  const auto file = folder.path() / "deep" / "metrics.jsonl";
  std::filesystem::create_directory(file.parent_path());
  std::filesystem::create_symlink(file, link);
  write_iterations(link, 0, 3);
  write_iterations(link, 2, 4);
  EXPECT_EQ(iterations(file, "train"), (std::vector<std::int64_t>{1, 2, 3, 4}));
  write_iterations(link, 0, 1);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(iterations(file, "train"), (std::vector<std::int64_t>{1}));
}

TEST(Metrics, WithoutAPathNothingHappens) {
  MetricsFile file("", 0);
  file.write("train", 1, {{"lm_loss", 1.0}});
}

TEST(Metrics, AFolderThatCannotBeWrittenIsAnIoError) {
  const TempFolder folder;
  std::ofstream(folder.path() / "plain") << "x";
  expect_error(ErrorKind::kIo, "plain",
               [&] { MetricsFile(folder.path() / "plain" / "metrics.jsonl", 0); });
}

}  // namespace
}  // namespace pentatron::training
