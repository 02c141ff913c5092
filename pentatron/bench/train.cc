// SPDX-License-Identifier: Apache-2.0
#include "pentatron/bench/train.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/screen.h"
#include "pentatron/bench/child.h"
#include "pentatron/bench/stopwatch.h"
#include "pentatron/bench/train_bound.h"
#include "pentatron/tensor/device.h"
#include "pentatron/training/dry_run/dry_run.h"
#include "pentatron/training/metrics.h"

namespace pentatron::bench {
namespace {

namespace fs = std::filesystem;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Removed with what is in it.
class TemporaryFolder final {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "pentatron-bench-XXXXXX").string();
    PENTATRON_CHECK(::mkdtemp(name.data()) != nullptr, kIo, "cannot make a folder like {}", name);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string text_of(const fs::path& path) {
  const std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// Bytes behind "max allocated: " of the memory report, whose MB are 2^20 bytes; 0: none.
std::int64_t peak_of(const std::string& log) {
  constexpr std::string_view kName = "| max allocated: ";
  constexpr double kMegabyte = 1 << 20;
  const std::size_t at = log.rfind(kName);
  if (at == std::string::npos) return 0;
  double megabytes = 0;
  const char* begin = log.data() + at + kName.size();
  const auto [end, error] = std::from_chars(begin, log.data() + log.size(), megabytes);
  return error == std::errc() && end != begin ? static_cast<std::int64_t>(megabytes * kMegabyte)
                                              : 0;
}

// The last line that tells why a run failed.
std::string reason_of(const std::string& log) {
  std::istringstream lines(log);
  std::string reason, last;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("error:") != std::string::npos) reason = line;
    if (!line.empty()) last = line;
  }
  return reason.empty() ? last : reason;
}

std::int64_t lines_of(const fs::path& path) {
  const std::string text = text_of(path);
  return std::count(text.begin(), text.end(), '\n');
}

std::vector<double> values_of(const fs::path& metrics, const char* name) {
  std::vector<double> values;
  for (const training::MetricsPoint& point : training::read_metrics(metrics, "train", name)) {
    values.push_back(point.value);
  }
  return values;
}

nlohmann::json to_json(const Workload& workload, const TrainResult& r, const TrainBound& bound) {
  return {{"id", workload.id},
          {"title", workload.title},
          {"options", workload.words},
          {"warm_up", workload.warm_up},
          {"steps", workload.steps},
          {"step_seconds", r.step_seconds},
          {"fastest_step_seconds", r.fastest},
          {"slowest_step_seconds", r.slowest},
          {"tokens_per_second", r.tokens_per_second},
          {"flops_per_second", r.flops_per_second},
          {"share_of_bound", r.share_of_bound},
          {"bound_seconds",
           {{"layer_products", bound.layer_products},
            {"head_products", bound.head_products},
            {"attention", bound.attention},
            {"memory", bound.memory},
            {"optimizer", bound.optimizer},
            {"total", bound.total()}}},
          {"sm_clock_mhz", r.power.sm_clock_mhz},
          {"watts", r.power.watts},
          {"joules_per_token", r.joules_per_token},
          {"first_loss", r.first_loss},
          {"planned_memory_bytes", r.planned_memory},
          {"peak_memory_bytes", r.peak_memory}};
}

void print_head() {
  log::print_line(fmt::format("\n{:<12} {:>9} {:>17} {:>9} {:>8} {:>8} {:>5} {:>5} {:>9} {:>12}",
                              "training", "tokens/s", "ms a step", "TFLOP/s", "bound ms",
                              "of bound", "MHz", "W", "mJ/token", "peak GiB"));
}

void print_result(const Workload& workload, const TrainResult& r, const TrainBound& bound) {
  constexpr double kGibibyte = 1 << 30;
  log::print_line(fmt::format(
      "{:<12} {:>9.0f} {:>17} {:>9.2f} {:>8.1f} {:>7.1f}% {:>5.0f} {:>5.0f} {:>9.3f} {:>12}",
      workload.id, r.tokens_per_second,
      fmt::format("{:.1f} ({:.1f}-{:.1f})", r.step_seconds * 1e3, r.fastest * 1e3, r.slowest * 1e3),
      r.flops_per_second * 1e-12, bound.total() * 1e3, 100 * r.share_of_bound, r.power.sm_clock_mhz,
      r.power.watts, r.joules_per_token * 1e3,
      fmt::format("{:.2f}/{:.2f}", static_cast<double>(r.peak_memory) / kGibibyte,
                  static_cast<double>(r.planned_memory) / kGibibyte)));
}

// What of the workloads is asked for, with its steps.
std::vector<Workload> chosen(const TrainRequest& request) {
  const std::vector<tensor::GpuInfo> gpus = tensor::gpus();
  const std::int64_t memory = gpus.empty() ? 0 : gpus.front().memory_bytes;
  const std::vector<Workload> all = workloads(request.device, memory);
  std::vector<Workload> some;
  std::string names;
  for (Workload workload : all) {
    names += (names.empty() ? "" : ", ") + workload.id;
    if (request.steps > 0) workload.steps = request.steps;
    const bool asked = request.ids.empty() || std::find(request.ids.begin(), request.ids.end(),
                                                        workload.id) != request.ids.end();
    if (asked) some.push_back(std::move(workload));
  }
  for (const std::string& id : request.ids) {
    PENTATRON_CHECK(
        std::any_of(all.begin(), all.end(), [&](const Workload& w) { return w.id == id; }), kConfig,
        "--workload {}: on this device there are {}", id, names);
  }
  return some;
}

// One run in a process of its own; its number of steps is told on the terminal.
TrainResult run_workload(const TrainRequest& request, const Workload& workload) {
  const TemporaryFolder folder;
  const fs::path metrics = folder.path() / "metrics.jsonl", log = folder.path() / "log.txt";
  const std::int64_t steps = workload.warm_up + workload.steps;
  std::vector<std::string> words = run_words(workload, steps, metrics.string());
  words.insert(words.begin(), "pretrain_gpt");
  words.insert(words.end(), {"--device", request.device.is_cuda() ? "cuda" : "cpu"});
  std::atomic<std::int64_t> done = 0;
  int code = 0;
  {
    const screen::LiveLine line(STDERR_FILENO, [&](const Terminal& terminal, int tick) {
      return fmt::format("{} {}: step {} of {}", spinner(tick, terminal), workload.id, done.load(),
                         steps);
    });
    // The first line tells of the run.
    code =
        run_program(words, log, [&] { done = std::max<std::int64_t>(0, lines_of(metrics) - 1); });
  }
  const std::string text = text_of(log);
  PENTATRON_CHECK(code == 0, kInternal, "pretrain_gpt ended with {}: {}", code, reason_of(text));
  TrainResult result = read_result(metrics, text, workload);
  const std::vector<double> times = values_of(metrics, "time");
  if (request.power != nullptr && times.size() > static_cast<std::size_t>(workload.warm_up)) {
    const auto first = static_cast<std::size_t>(std::max<std::int64_t>(workload.warm_up, 1) - 1);
    result.power = request.power->between(times[first], times.back());
    const double tokens =
        result.tokens_per_second * result.step_seconds * static_cast<double>(workload.steps);
    result.joules_per_token = result.power.joules / tokens;
  }
  return result;
}

}  // namespace

TrainResult read_result(const fs::path& metrics, const std::string& log, const Workload& workload) {
  const std::vector<double> rates = values_of(metrics, "tokens_per_second");
  PENTATRON_CHECK(static_cast<std::int64_t>(rates.size()) == workload.warm_up + workload.steps,
                  kData, "{} tells of {} steps instead of {} and {} of the warm-up",
                  metrics.string(), rates.size(), workload.steps, workload.warm_up);
  const training::dry_run::DryRun plan =
      training::dry_run::plan_of(options_of(run_words(workload, 1, "")));
  const double tokens = static_cast<double>(plan.config.training.global_batch_size) *
                        static_cast<double>(plan.config.model.seq_length);
  std::vector<double> seconds;
  for (auto rate = rates.begin() + workload.warm_up; rate != rates.end(); ++rate) {
    seconds.push_back(tokens / *rate);
  }
  const std::vector<double> losses = values_of(metrics, "lm_loss");
  const auto [fastest, slowest] = std::minmax_element(seconds.begin(), seconds.end());
  const double step = median(seconds);
  return {.step_seconds = step,
          .fastest = *fastest,
          .slowest = *slowest,
          .tokens_per_second = tokens / step,
          .flops_per_second = plan.step_flops / step,
          .share_of_bound = kUnknown,
          .joules_per_token = kUnknown,
          .power = {kUnknown, kUnknown, kUnknown},
          .first_loss = losses.empty() ? kUnknown : losses.front(),
          .planned_memory = plan.asked.memory.total(),
          .peak_memory = peak_of(log)};
}

bool measure_training(const TrainRequest& request, nlohmann::json& out) {
  out = nlohmann::json::array();
  const std::vector<Workload> all = chosen(request);
  for (const Workload& workload : all) {
    log::print_line(fmt::format("{}{:<12} {}", &workload == &all.front() ? "\n" : "", workload.id,
                                workload.title));
  }
  print_head();
  bool good = true;
  for (const Workload& workload : all) {
    try {
      const config::RunConfig config =
          training::dry_run::plan_of(options_of(run_words(workload, 1, ""))).config;
      const TrainBound bound = train_bound(request.device, config, request.copy_bytes_per_second);
      tensor::empty_device_cache();
      TrainResult result = run_workload(request, workload);
      result.share_of_bound = bound.total() / result.step_seconds;
      print_result(workload, result, bound);
      out.push_back(to_json(workload, result, bound));
    } catch (const Error& error) {
      good = false;
      log::print_line(fmt::format("{:<12} failed: {}", workload.id, error.what()));
      out.push_back({{"id", workload.id}, {"title", workload.title}, {"error", error.what()}});
    }
  }
  return good;
}

}  // namespace pentatron::bench
