// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/run_data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "pentatron/monitor/thin_out.h"

namespace pentatron::monitor {
namespace {

using nlohmann::json;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Record step(std::int64_t iteration, double loss, double tokens = std::nan("")) {
  Record record{.kind = RecordKind::kTrain, .iteration = iteration};
  record.values.fill(std::nan(""));
  record.values[kLossField] = loss;
  record.values[kSpeedField] = 100;
  record.values[kSecondsField] = 0.5;
  record.consumed_tokens = tokens;
  return record;
}

json series(const RunData& data, SeriesRequest request) {
  request.fields = {kLossField};
  return json::parse("{" + data.series_json(request) + "}");
}
json loss_of(const RunData& data, const SeriesRequest& request) {
  return series(data, request)["series"]["lm_loss"];
}
json summary(RunData& data, double age = 0) {
  return json::parse("{" + data.summary_json(age) + "}");
}

TEST(ThinOut, BucketsKeepTheLeastAndTheGreatest) {
  const std::vector<double> x{0, 1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<float> y{5, 1, 9, 4, kNan, kNan, 3, kNan, 2};
  std::vector<SeriesPoint> points;
  append_thinned(x, y, 4, points);
  ASSERT_EQ(points.size(), 4U);
  EXPECT_EQ(points[0].x, 1);
  EXPECT_EQ(points[1].y, 9);
  EXPECT_EQ(points[2].y, 3);
  EXPECT_EQ(points[3].x, 8);
  points.clear();
  append_thinned(x, y, 2, points);
  ASSERT_EQ(points.size(), 7U);
  EXPECT_TRUE(std::isnan(points[4].y));  // a bucket without a value breaks the line
  points.clear();
  append_thinned(x, y, 0, points);
  EXPECT_EQ(points.size(), x.size());
}

TEST(ThinOut, WidthsArePowersOfTwo) {
  EXPECT_EQ(bucket_width(1000, 200, 100), 0);  // few enough
  EXPECT_EQ(bucket_width(1000, 201, 100), 16);
  EXPECT_EQ(bucket_width(1600, 10'000, 100), 16);
  EXPECT_EQ(bucket_width(1601, 10'000, 100), 32);
  EXPECT_EQ(bucket_width(0, 10'000, 100), 0);
  EXPECT_EQ(bucket_width(std::nan(""), 10'000, 100), 0);
}

TEST(RunData, XIsIterationTokensOrTime) {
  RunData data;
  data.add(step(10, 3));
  data.add(step(20, 2));
  EXPECT_EQ(loss_of(data, {}), json::parse("[10,3,20,2]"));
  // Rate times duration, as older files do not count.
  EXPECT_EQ(loss_of(data, {.axis = Axis::kTokens}), json::parse("[50,3,100,2]"));
  EXPECT_EQ(loss_of(data, {.axis = Axis::kTime}), json::parse("[0.5,3,1,2]"));
  data.add(step(30, 1, 4000));
  EXPECT_EQ(loss_of(data, {.axis = Axis::kTokens}), json::parse("[50,3,100,2,4000,1]"));
  Record evaluation{.kind = RecordKind::kValidation, .iteration = 30};
  evaluation.values[kLossField] = 1.5;
  data.add(evaluation);
  EXPECT_EQ(series(data, {.axis = Axis::kTokens})["validation"][""], json::parse("[4000,1.5]"));
}

TEST(RunData, TheLaterWordOfAResumedRunCounts) {
  RunData data;
  for (int i = 1; i <= 5; ++i) data.add(step(i, i));
  const std::int64_t before = data.generation();
  data.add(step(3, 30));
  EXPECT_EQ(loss_of(data, {}), json::parse("[1,1,2,2,3,30]"));
  EXPECT_NE(data.generation(), before);
  EXPECT_EQ(loss_of(data, {.axis = Axis::kTime}), json::parse("[0.5,1,1,2,1.5,30]"));
  EXPECT_EQ(summary(data)["best_loss"], 1);
  EXPECT_EQ(summary(data)["best_iteration"], 1);
}

TEST(RunData, AZoomHasItsPointsAndOneMoreOnEachSide) {
  RunData data;
  for (int i = 0; i < 10'000; ++i) data.add(step(i, i == 5000 ? 100 : 1));
  // The whole run in 100 buckets shows the spike at its place.
  const json all = loss_of(data, {.num_buckets = 100});
  EXPECT_LE(all.size(), 2 * 2 * 101U);
  bool seen = false;
  for (std::size_t i = 0; i < all.size(); i += 2) {
    seen = seen || (all[i] == 5000 && all[i + 1] == 100);
  }
  EXPECT_TRUE(seen);
  EXPECT_EQ(loss_of(data, {.from = 4999.5, .to = 5001.0, .num_buckets = 100}),
            json::parse("[4999,1,5000,100,5001,1,5002,1]"));
  EXPECT_EQ(loss_of(data, {.from = 1e9, .to = 2e9}), json::parse("[9999,1]"));
  EXPECT_EQ(loss_of(data, {.from = 9.0, .to = 3.0}).size() % 2, 0U);
}

// What a page puts together from pieces is what it would be sent whole.
TEST(RunData, NewsJoinWhatIsThere) {
  RunData data;
  json x;
  json width = -1;
  json generation = -1;
  json last = 0;
  int whole = 0;
  for (int i = 0; i < 3000; ++i) {
    data.add(step(i, std::sin(i * 0.7)));
    if (i % 37 != 0) continue;
    const json part =
        series(data, {.num_buckets = 64, .generation = generation, .width = width, .since = last});
    if (part["since"].is_null()) {
      ++whole;
      x = part["series"]["lm_loss"];
    } else {
      while (!x.empty() && x[x.size() - 2] >= part["since"]) {
        x.erase(x.size() - 1);
        x.erase(x.size() - 1);
      }
      for (const json& value : part["series"]["lm_loss"]) x.push_back(value);
    }
    generation = part["generation"];
    width = part["width"];
    last = part["last"];
    ASSERT_EQ(x, loss_of(data, {.num_buckets = 64})) << i;
  }
  EXPECT_LT(whole, 9);  // only when the width doubles
}

TEST(RunData, SmoothingGoesOverAllRecords) {
  RunData data;
  for (int i = 0; i < 1000; ++i) data.add(step(i, i % 2 == 0 ? 1 : 3));
  const json smooth =
      series(data, {.from = 900.0, .num_buckets = 5, .smoothing = 0.99})["smooth"]["lm_loss"];
  ASSERT_GT(smooth.size(), 4U);
  for (std::size_t i = 1; i < smooth.size(); i += 2) EXPECT_NEAR(smooth[i], 2, 0.02);
}

TEST(RunData, TellsStateSpeedAndTimeLeft) {
  RunData data;
  Record start{.kind = RecordKind::kRun, .iteration = 0};
  start.text = R"({"train_iters":100})";
  data.add(start);
  for (int i = 1; i <= 60; ++i) data.add(step(i, i == 60 ? std::nan("") : 2));
  json told = summary(data, 10);
  EXPECT_EQ(told["state"], "running");
  EXPECT_EQ(told["eta_seconds"], 20);  // 40 steps of half a second
  EXPECT_EQ(told["tokens_per_second"], 100);
  EXPECT_EQ(told["loss"], nullptr);
  told = summary(data, 3600);
  EXPECT_EQ(told["state"], "stopped");
  EXPECT_EQ(told["eta_seconds"], nullptr);
  data.add(step(100, 1));
  EXPECT_EQ(summary(data, 0)["state"], "finished");
}

TEST(RunData, KeepsSomeSamplesAndSaysAnEvaluationOnce) {
  RunData data;
  const auto sample = [](std::int64_t iteration, const std::string& text) {
    return Record{.kind = RecordKind::kSample, .iteration = iteration, .prompt = "p", .text = text};
  };
  for (int i = 0; i < 2000; ++i) data.add(sample(i, "x"));
  data.add(sample(1999, "again"));
  const json samples = json::parse(data.samples_json());
  EXPECT_LE(samples.size(), RunData::kMaxSamples);
  EXPECT_EQ(samples.back()["text"], "again");
  EXPECT_EQ(samples[samples.size() - 2]["iteration"], 1998);
}

}  // namespace
}  // namespace pentatron::monitor
