// SPDX-License-Identifier: Apache-2.0
// What RunData sends: written by hand where it is long, because it is made for every question.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "pentatron/monitor/run_data.h"
#include "pentatron/monitor/thin_out.h"

namespace pentatron::monitor {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.10g}", value) : "null";
}

void append_points(const std::vector<SeriesPoint>& points, std::string& out) {
  out += '[';
  for (const SeriesPoint& point : points) {
    if (out.back() != '[') out += ',';
    if (std::isfinite(point.y)) {
      fmt::format_to(std::back_inserter(out), "{:.12g},{:.6g}", point.x, point.y);
    } else {
      fmt::format_to(std::back_inserter(out), "{:.12g},null", point.x);
    }
  }
  out += ']';
}

}  // namespace

std::string RunData::summary_json(double age_seconds) {
  look_at_new_losses();
  const bool any = !iteration_.empty();
  const std::int64_t last = any ? iteration_.back() : 0;
  const double step_seconds = any ? mean_of_newest(kSecondsField) : NAN;
  double best = NAN;
  std::int64_t best_at = -1;
  for (const auto& [set, list] : evaluations_) {
    for (const Evaluation& e : list) {
      if (!std::isfinite(e.loss) || (best_at >= 0 && e.loss >= best)) continue;
      best = e.loss;
      best_at = e.iteration;
    }
  }
  // Evaluations and saves take their time between two steps.
  const double patience = std::max(60.0, std::isfinite(step_seconds) ? 20 * step_seconds : 0);
  const bool finished = train_iters_ > 0 && last >= train_iters_;
  const bool running = !finished && age_seconds < patience;
  const std::int64_t left = std::max<std::int64_t>(0, train_iters_ - last);
  return fmt::format(
      R"("generation":{},"version":{},"num_records":{},"state":"{}","iteration":{},"train_iters":{},)"
      R"("loss":{},"best_loss":{},"best_iteration":{},"best_validation":{},)"
      R"("best_validation_iteration":{},"tokens_per_second":{},"eta_seconds":{},"tokens":{},)"
      R"("seconds":{},"starts":{},"samples_version":{},"num_samples":{},"age_seconds":{:.0f})",
      generation_, version_, num_records(),
      finished  ? "finished"
      : running ? "running"
                : "stopped",
      last, train_iters_, any ? number(values_[kLossField].back()) : "null",
      best_iteration_ >= 0 ? number(best_loss_) : "null", best_iteration_, number(best), best_at,
      any ? number(mean_of_newest(kSpeedField)) : "null",
      running && train_iters_ > 0 ? number(step_seconds * static_cast<double>(left)) : "null",
      any ? number(tokens_.back()) : "0", any ? number(seconds_.back()) : "0", num_starts_,
      samples_version_, samples_.size(), age_seconds);
}

std::string RunData::series_json(const SeriesRequest& request) const {
  const std::size_t size = iteration_.size();
  const Axis axis = request.axis;
  // One record more on either side, so that lines leave the picture.
  std::size_t begin = request.from ? lower_bound(axis, *request.from) : 0;
  std::size_t end = request.to ? lower_bound(axis, *request.to) : size;
  if (begin > 0) --begin;
  if (end < size) ++end;
  if (request.to && end < size) ++end;
  end = std::max(begin, std::min(end, size));
  const double first = begin < end ? axis_value(axis, begin) : 0;
  const double span = begin < end ? axis_value(axis, end - 1) - first : 0;
  const double width = bucket_width(span, end - begin, request.num_buckets);
  const bool follows = request.generation == generation_ && request.width == width && begin < end;
  if (follows) begin = std::max(begin, std::min(end, lower_bound(axis, request.since)));
  const double newest = size > 0 ? axis_value(axis, size - 1) : 0;
  const double last = begin < end ? axis_value(axis, end - 1) : follows ? request.since : first;
  std::string out = fmt::format(
      R"("generation":{},"version":{},"width":{:.17g},"since":{},"last":{:.17g},"end":{:.12g},"series":{{)",
      generation_, version_, width, follows ? fmt::format("{:.17g}", request.since) : "null",
      width > 0 ? bucket_start(last, width) : last, newest);
  std::vector<double> x;
  x.reserve(end - begin);
  for (std::size_t i = begin; i < end; ++i) x.push_back(axis_value(axis, i));
  std::string smooth;
  for (const std::size_t field : request.fields) {
    const std::vector<float>& all = values_[field];
    const auto append = [&](std::span<const float> values, std::string& text) {
      std::vector<SeriesPoint> points;
      const auto wanted = values.subspan(begin, end - begin);
      if (std::any_of(wanted.begin(), wanted.end(), [](float v) { return std::isfinite(v); })) {
        append_thinned(x, wanted, width, points);
      }
      fmt::format_to(std::back_inserter(text),
                     "{}\"{}\":", text.empty() || text.back() == '{' ? "" : ",", kFields[field]);
      append_points(points, text);
    };
    append(all, out);
    if (request.smoothing > 0) append(running_mean(all, request.smoothing), smooth);
  }
  out += "},\"smooth\":{" + smooth + "},\"validation\":{";
  for (const auto& [set, list] : evaluations_) {
    std::vector<SeriesPoint> points;
    for (const Evaluation& e : list) {
      const double at = axis == Axis::kTokens ? e.tokens
                        : axis == Axis::kTime ? e.seconds
                                              : static_cast<double>(e.iteration);
      points.push_back({at, static_cast<float>(e.loss)});
    }
    if (out.back() != '{') out += ',';
    out += quoted(set) + ":";
    append_points(points, out);
  }
  return out + "}";
}

std::string RunData::about_json() const {
  return fmt::format(R"("starts":{},"run":{})", num_starts_, start_.empty() ? "null" : start_);
}

std::string RunData::samples_json() const {
  std::string out = "[";
  for (const Sample& sample : samples_) {
    if (out.size() > 1) out += ',';
    out += fmt::format(R"({{"iteration":{},"prompt":{},"text":{}}})", sample.iteration,
                       quoted(sample.prompt), quoted(sample.text));
  }
  return out + "]";
}

std::string RunData::csv_head() {
  return fmt::format("kind,set,iteration,tokens,training_seconds,{}\n", fmt::join(kFields, ","));
}

std::string RunData::csv_rows(std::size_t from) const {
  std::string out;
  const std::size_t size = iteration_.size();
  const std::size_t end = std::min(size, from + kCsvRowsAPiece);
  for (std::size_t i = from; i < end; ++i) {
    fmt::format_to(std::back_inserter(out), "train,,{},{:.17g},{:.10g}", iteration_[i], tokens_[i],
                   seconds_[i]);
    for (const std::vector<float>& column : values_) {
      out += ',';
      if (std::isfinite(column[i])) fmt::format_to(std::back_inserter(out), "{:.9g}", column[i]);
    }
    out += '\n';
  }
  if (end < size) return out;
  // Of all evaluations, number from - size on.
  std::size_t skip = from > size ? from - size : 0;
  std::size_t room = kCsvRowsAPiece - (end > from ? end - from : 0);
  for (const auto& [set, list] : evaluations_) {
    std::string name = set;  // as RFC 4180 has it
    for (std::size_t at = 0; (at = name.find('"', at)) != std::string::npos; at += 2) {
      name.insert(at, 1, '"');
    }
    for (const Evaluation& e : list) {
      if (skip > 0) {
        --skip;
        continue;
      }
      if (room-- == 0) return out;
      fmt::format_to(std::back_inserter(out), "validation,\"{}\",{},{:.17g},{:.10g},", name,
                     e.iteration, e.tokens, e.seconds);
      if (std::isfinite(e.loss)) fmt::format_to(std::back_inserter(out), "{:.9g}", e.loss);
      out += std::string(kFields.size() - 1, ',') + "\n";
    }
  }
  return out;
}

}  // namespace pentatron::monitor
