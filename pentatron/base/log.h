// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

// Logging: one line a message, to standard error, labelled with the calling thread's rank. Training
// lines (Megatron's format) go to standard output through print_line, whole lines only.
namespace pentatron::log {

enum class Level { kDebug, kInfo, kWarn, kError };

// PENTATRON_LOG_LEVEL: debug, info (when unset), warn or error; another value: kConfig error. The
// logger reads it at first use, where a bad value is only a warning.
[[nodiscard]] Level level_from_environment();

void set_level(Level level);

// Label of the calling thread ("rank 3 (tp 1, pp 0, dp 1)"); empty in a single-rank run.
void set_thread_label(std::string label);
[[nodiscard]] const std::string& thread_label();

void write(Level level, std::string_view message);

// One whole line to standard output, flushed; safe from several threads.
void print_line(std::string_view line);

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kWarn, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace pentatron::log
