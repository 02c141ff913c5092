// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pentatron::monitor {

// Numbers of a record that can be drawn.
inline constexpr std::array<std::string_view, 11> kFields{
    "lm_loss",         "grad_norm",     "learning_rate",  "tokens_per_second",
    "memory_reserved", "seconds",       "tflops_per_gpu", "cpu_utilisation",
    "gpu_utilisation", "watts_per_gpu", "loss_scale"};
inline constexpr std::size_t kLossField = 0;
inline constexpr std::size_t kSpeedField = 3;
inline constexpr std::size_t kSecondsField = 5;

enum class RecordKind {
  kTrain,
  kValidation,
  kTest,
  kSample,
  kRun,  // what a process of the run is: options, layout (training/metrics.h)
};

// One line of a metrics file. Values that are missing or not finite are NaN.
struct Record {
  RecordKind kind = RecordKind::kTrain;
  std::int64_t iteration = 0;
  std::array<double, kFields.size()> values{};
  double consumed_tokens = 0;  // NaN: not told
  double time = 0;             // seconds since 1970; NaN: not told
  std::string set = {};        // of several validation sets
  std::string prompt = {};     // of samples
  std::string text = {};       // of samples; of kRun the whole record as checked JSON of one line
};

// Nothing for a line that is no record (strict JSON in UTF-8, at most 64 levels deep, no number
// beyond a double, none of the members above twice) or of a kind that is not shown. Texts are cut
// to a few thousand bytes, names of sets to some dozens.
[[nodiscard]] std::optional<Record> parse_record(std::string_view line);

}  // namespace pentatron::monitor
