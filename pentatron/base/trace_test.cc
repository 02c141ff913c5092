// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "pentatron/base/file.h"
#include "pentatron/base/json.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/base/timer.h"
#include "pentatron/base/trace_counter.h"
#include "pentatron/base/trace_summary.h"

namespace pentatron {
namespace {

constexpr std::int64_t kStart = std::int64_t{1'790'000'000} * 1'000'000'000;  // in 2026

std::vector<TraceSpan> some_spans() {
  return {{.lane = "schedule",
           .name = "forward",
           .begin_ns = kStart,
           .end_ns = kStart + 4'000'001,
           .chunk = 1,
           .micro_batch = 0},
          {.lane = "GPU stream 7",
           .name = "gemm \"x\"\n",
           .begin_ns = kStart + 1'000'000,
           .end_ns = kStart + 3'000'000,
           .unit = "forward head"},
          {.lane = "GPU stream 7",
           .name = "gemm \"x\"\n",
           .begin_ns = kStart + 5'000'000,
           .end_ns = kStart + 6'000'000},
          {.lane = "GPU stream 9",
           .name = "ncclDevKernel",
           .begin_ns = kStart + 2'000'000,
           .end_ns = kStart + 4'000'000,
           .bytes = 1024}};
}

std::string read_text(const std::filesystem::path& path) {
  const MappedFile map(path);
  return {reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()};
}

TEST(Trace, RecordsOnlyWhileItIsTold) {
  Trace trace;
  { const TraceScope before(&trace, "lane", "before"); }
  trace.set_recording(true);
  {
    const TraceScope outer(&trace, "lane", "outer", {.chunk = 2, .micro_batch = 3, .bytes = 4});
    const TraceScope inner(&trace, "lane", "inner");
    const TraceScope none(nullptr, "lane", "none");
  }
  trace.set_recording(false);
  { const TraceScope after(&trace, "lane", "after"); }
  ASSERT_EQ(trace.spans().size(), 2U);
  const TraceSpan& inner = trace.spans()[0];
  const TraceSpan& outer = trace.spans()[1];
  EXPECT_EQ(inner.name, "inner");
  EXPECT_EQ(outer.name, "outer");
  EXPECT_EQ(outer.chunk, 2);
  EXPECT_EQ(outer.micro_batch, 3);
  EXPECT_EQ(outer.bytes, 4);
  EXPECT_LE(outer.begin_ns, inner.begin_ns);
  EXPECT_LE(inner.begin_ns, inner.end_ns);
  EXPECT_LE(inner.end_ns, outer.end_ns);
}

TEST(Trace, TimersOfEveryLevelAreSpans) {
  Trace trace;
  trace.set_recording(true);
  Timers timers(0);
  timers.set_trace(&trace);
  {
    const TimedScope coarse(&timers, "coarse", 0);
    const TimedScope fine(&timers, "fine", 2);
  }
  ASSERT_EQ(trace.spans().size(), 2U);
  EXPECT_EQ(trace.spans()[0].name, "fine");
  EXPECT_EQ(trace.spans()[1].name, "coarse");
  EXPECT_EQ(trace.spans()[1].lane, "phases");
  EXPECT_EQ(timers.names(), std::vector<std::string>{"coarse"});
}

TEST(Trace, FileIsTheFormatThatPerfettoReads) {
  const TempFolder folder;
  const auto path = folder.path() / "rank-00003.json";
  write_trace(path, 3, "rank 3 (tp 1)", some_spans());
  const nlohmann::json whole = parse_json(read_text(path), "trace");
  const nlohmann::json& events = whole.at("traceEvents");
  ASSERT_EQ(events.size(), 1U + 3U + 4U);
  EXPECT_EQ(events[0].at("ph"), "M");
  EXPECT_EQ(events[0].at("name"), "process_name");
  EXPECT_EQ(events[0].at("args").at("name"), "rank 3 (tp 1)");
  EXPECT_EQ(events[2].at("name"), "thread_name");
  EXPECT_EQ(events[2].at("args").at("name"), "GPU stream 7");
  const nlohmann::json& forward = events[4];
  EXPECT_EQ(forward.at("ph"), "X");
  EXPECT_EQ(forward.at("pid"), 3);
  EXPECT_EQ(forward.at("tid"), 0);
  EXPECT_EQ(forward.at("dur"), 4000.001);
  EXPECT_EQ(forward.at("args"), (nlohmann::json{{"chunk", 1}, {"micro_batch", 0}}));
  EXPECT_EQ(events[5].at("ts").get<double>() - forward.at("ts").get<double>(), 1000.0);
}

TEST(Trace, ReadsWhatItWrote) {
  const TempFolder folder;
  const auto path = folder.path() / "rank-00003.json";
  const std::vector<TraceSpan> spans = some_spans();
  write_trace(path, 3, "rank 3", spans);
  const TraceFile file = read_trace(path);
  EXPECT_EQ(file.rank, 3);
  EXPECT_EQ(file.process, "rank 3");
  ASSERT_EQ(file.spans.size(), spans.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(file.spans[i].lane, spans[i].lane);
    EXPECT_EQ(file.spans[i].name, spans[i].name);
    EXPECT_EQ(file.spans[i].begin_ns, spans[i].begin_ns);
    EXPECT_EQ(file.spans[i].end_ns, spans[i].end_ns);
    EXPECT_EQ(file.spans[i].chunk, spans[i].chunk);
    EXPECT_EQ(file.spans[i].micro_batch, spans[i].micro_batch);
    EXPECT_EQ(file.spans[i].bytes, spans[i].bytes);
    EXPECT_EQ(file.spans[i].unit, spans[i].unit);
  }
}

TEST(Trace, CountersAreCounterEvents) {
  const TempFolder folder;
  const auto path = folder.path() / "rank-00001.json";
  Trace trace;
  add_counter(&trace, "held", 1);  // not recording
  add_counter(nullptr, "held", 1);
  trace.set_recording(true);
  add_counter(&trace, "held", 4096);
  add_counter(&trace, "held", 0);
  write_trace(path, 1, "rank 1", trace.spans());
  const nlohmann::json whole = parse_json(read_text(path), "trace");
  const nlohmann::json& events = whole.at("traceEvents");
  ASSERT_EQ(events.size(), 1U + 1U + 2U);
  EXPECT_EQ(events[2].at("ph"), "C");
  EXPECT_EQ(events[2].at("name"), "held");
  EXPECT_EQ(events[2].at("pid"), 1);
  EXPECT_EQ(events[2].at("args"), (nlohmann::json{{"bytes", 4096}}));
  EXPECT_FALSE(events[2].contains("dur"));
  const TraceFile file = read_trace(path);
  ASSERT_EQ(file.spans.size(), 2U);
  EXPECT_EQ(file.spans[0].lane, kCounterLane);
  EXPECT_EQ(file.spans[0].bytes, 4096);
  EXPECT_EQ(file.spans[0].begin_ns, trace.spans()[0].begin_ns);
  EXPECT_EQ(file.spans[0].end_ns, file.spans[0].begin_ns);
  EXPECT_EQ(file.spans[1].bytes, 0);
}

TEST(Trace, OtherFilesAreRefusedByName) {
  const TempFolder folder;
  const auto path = folder.path() / "other.json";
  for (
      const char* text :
      {"", "{}", "[1]", R"({"otherData":{"origin_ns":0},"traceEvents":[{"ph":"X"}]})",
       R"({"otherData":{"origin_ns":0},"traceEvents":[{"ph":"X","tid":9,"name":"a","ts":0,"dur":1}]})",
       R"({"otherData":{"origin_ns":0},"traceEvents":[{"ph":"X","tid":-1,"name":"a","ts":0,"dur":1}]})"}) {
    AtomicFile file(path);
    file.write(text);
    file.commit();
    expect_error(ErrorKind::kData, "other.json", [&] { (void)read_trace(path); });
  }
}

TEST(TraceSummary, BusyTimeIsTheUnionAndUnitsOwnTheirKernels) {
  const TraceFile file{.rank = 3, .process = "rank 3", .spans = some_spans()};
  const TraceSummary summary = summarize_trace(file);
  EXPECT_EQ(summary.window_ns, 6'000'000);
  EXPECT_EQ(summary.gpu_busy_ns, 4'000'000);     // 1 to 4 ms and 5 to 6 ms
  EXPECT_EQ(summary.gpu_compute_ns, 3'000'000);  // without NCCL's kernel
  ASSERT_EQ(summary.kernels.size(), 2U);
  EXPECT_EQ(summary.kernels[0].count, 2);
  EXPECT_EQ(summary.kernels[0].total_ns, 3'000'000);
  EXPECT_EQ(summary.kernels[1].name, "ncclDevKernel");
  ASSERT_EQ(summary.ops.size(), 2U);
  EXPECT_EQ(summary.ops[0].name, "product");
  EXPECT_EQ(summary.ops[1].name, "collective");
  EXPECT_EQ(summary.ops[1].total_ns, 2'000'000);
  ASSERT_EQ(summary.units.size(), 2U);
  EXPECT_EQ(summary.units[0].name, "outside of units");
  EXPECT_EQ(summary.units[1].name, "forward head");
  EXPECT_EQ(summary.units[1].total_ns, 2'000'000);
  ASSERT_EQ(summary.actions.size(), 1U);
  EXPECT_EQ(summary.actions[0].total_ns, 4'000'001);
  const std::string text = format_trace_summary(file, summary, 1);
  EXPECT_NE(text.find("GPU busy 4.000 ms (66.7%), computing 3.000 ms (50.0%)"), std::string::npos)
      << text;
  EXPECT_NE(text.find("and 1 more"), std::string::npos) << text;
}

}  // namespace
}  // namespace pentatron
