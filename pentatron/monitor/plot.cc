// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/log.h"
#include "pentatron/monitor/chart.h"
#include "pentatron/monitor/metrics_tail.h"

namespace pentatron::monitor {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 12> kColours{"#3b7ddd", "#e0702b", "#2ba36b", "#a05cd6",
                                               "#d6455d", "#1aa0b8", "#b08a1f", "#7a7f8c",
                                               "#d94fb0", "#7cae3a", "#7a6ff0", "#8c4a3a"};
constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

struct MetricText {
  std::string title;
  std::string unit;
  double scale = 1;  // from the file's unit to that of the axis
};
const std::map<std::string, MetricText, std::less<>>& metric_texts() {
  static const std::map<std::string, MetricText, std::less<>> kTexts{
      {"lm_loss", {"Loss", "loss (nats a token)"}},
      {"grad_norm", {"Gradient norm", "gradient norm"}},
      {"learning_rate", {"Learning rate", "learning rate"}},
      {"tokens_per_second", {"Throughput", "tokens per second"}},
      {"memory_reserved", {"Memory", "memory (GiB)", 1 / kGib}},
      {"seconds", {"Time of a step", "seconds"}},
      {"tflops_per_gpu", {"Throughput", "model TFLOP/s per rank"}},
      {"cpu_utilisation", {"CPU utilisation", "% of the process's CPUs", 100}},
      {"gpu_utilisation", {"GPU utilisation", "% of the time", 100}},
      {"watts_per_gpu", {"Power", "W per GPU"}},
      {"loss_scale", {"Loss scale", "loss scale"}}};
  return kTexts;
}

std::vector<Record> read_records(const fs::path& file) {
  PENTATRON_CHECK(fs::is_regular_file(file), kIo, "{}: no such file, or no regular one",
                  file.string());
  MetricsTail tail(fs::canonical(file));
  std::vector<Record> records;
  for (MetricsTail::Result result = tail.poll(records);
       result != MetricsTail::Result::kNothingNew && result != MetricsTail::Result::kGone;
       result = tail.poll(records)) {
  }
  PENTATRON_CHECK(tail.num_bad_lines() == 0 || !records.empty(), kData,
                  "{}: {} lines and none is a record; is this a metrics file?", file.string(),
                  tail.num_bad_lines());
  if (tail.num_bad_lines() > 0) {
    log::warn("{}: {} lines are no records and were skipped", file.string(), tail.num_bad_lines());
  }
  return records;
}

std::vector<ChartPoint> points_of(const std::vector<Record>& records, RecordKind kind,
                                  const std::string& set, std::size_t field, double scale) {
  std::vector<ChartPoint> points;
  for (const Record& record : records) {
    if (record.kind != kind || record.set != set) continue;
    // A run that went on in an old file says some iterations again: the later word counts.
    while (!points.empty() && points.back().iteration >= record.iteration) points.pop_back();
    points.push_back({record.iteration, scale * record.values[field]});
  }
  return points;
}

// Of the evaluations, in the order of their first words; empty: the only set.
std::vector<std::string> sets_of(const std::vector<Record>& records) {
  std::vector<std::string> sets;
  for (const Record& record : records) {
    if (record.kind != RecordKind::kValidation) continue;
    if (std::find(sets.begin(), sets.end(), record.set) == sets.end()) sets.push_back(record.set);
  }
  return sets;
}

// "run" of run/metrics.jsonl, else the file's own name.
std::string run_name(const fs::path& file) {
  const fs::path name = file.filename().replace_extension();
  const fs::path folder = fs::absolute(file).parent_path().filename();
  return name == "metrics" && !folder.empty() ? folder.string() : name.string();
}

void add_run(const PlotRequest& request, std::size_t index, std::size_t field,
             std::vector<ChartSeries>& series) {
  const std::vector<Record> records = read_records(request.metrics_files[index]);
  const double scale = metric_texts().at(request.metric).scale;
  const bool alone = request.metrics_files.size() == 1;
  const std::string name = alone ? "" : run_name(request.metrics_files[index]) + " ";
  const std::string colour = kColours[index % kColours.size()];
  std::vector<ChartPoint> points = points_of(records, RecordKind::kTrain, "", field, scale);
  if (!points.empty() && request.smoothing > 0) {
    series.push_back({.label = {}, .points = points, .colour = colour, .faint = true});
    points = smoothed(points, request.smoothing);
  }
  if (!points.empty()) {
    series.push_back({.label = name + "training", .points = std::move(points), .colour = colour});
  }
  if (request.metric != "lm_loss") return;
  const std::vector<std::string> sets = sets_of(records);
  for (std::size_t i = 0; i < sets.size(); ++i) {
    // The only set has its run's colour beside other runs; several sets have one each.
    const bool own_colour = alone || !sets[i].empty();
    const std::size_t number = index + (i + 1) * request.metrics_files.size();
    series.push_back({.label = name + "validation" + (sets[i].empty() ? "" : " " + sets[i]),
                      .points = points_of(records, RecordKind::kValidation, sets[i], field, scale),
                      .colour = own_colour ? kColours[number % kColours.size()] : colour,
                      .markers = true});
  }
}

}  // namespace

void plot(const PlotRequest& request) {
  const auto field = std::find(kFields.begin(), kFields.end(), request.metric);
  PENTATRON_CHECK(field != kFields.end(), kConfig, "--metric {}: expected one of {}",
                  request.metric, fmt::join(kFields, ", "));
  const fs::path ending = request.output.extension();
  PENTATRON_CHECK(ending == ".svg" || ending == ".png", kConfig,
                  "--output {}: expected a name that ends in .svg or .png",
                  request.output.string());
  std::vector<ChartSeries> series;
  for (std::size_t i = 0; i < request.metrics_files.size(); ++i) {
    add_run(request, i, static_cast<std::size_t>(field - kFields.begin()), series);
  }
  const MetricText& text = metric_texts().at(request.metric);
  const std::unique_ptr<Canvas> canvas = ending == ".png"
                                             ? make_png_canvas(request.width, request.height)
                                             : make_svg_canvas(request.width, request.height);
  draw_chart(*canvas, series,
             {.title = request.title.empty() ? text.title : request.title,
              .y_label = text.unit,
              .log_scale = request.log_scale,
              .width = request.width,
              .height = request.height});
  write_file_atomically(request.output, canvas->finish());
}

}  // namespace pentatron::monitor
