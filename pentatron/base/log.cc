// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "pentatron/base/env.h"
#include "pentatron/base/error.h"
#include "pentatron/base/screen.h"

namespace pentatron::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// What a line begins with on a terminal.
std::string title_of(Level level, const Terminal& terminal) {
  if (level == Level::kError) return toned("error:", Tone::kRed, terminal) + " ";
  if (level == Level::kWarn) return toned("warning:", Tone::kYellow, terminal) + " ";
  return "";
}

std::string& label_of_this_thread() {
  thread_local std::string label;
  return label;
}

std::unique_ptr<spdlog::logger> make_logger(const char* pattern) {
  auto made = std::make_unique<spdlog::logger>("pentatron",
                                               std::make_shared<spdlog::sinks::stderr_sink_mt>());
  made->set_pattern(pattern);
  made->flush_on(spdlog::level::trace);
  return made;
}

std::unique_ptr<spdlog::logger> make_dated_logger() {
  auto made = make_logger("[%Y-%m-%d %H:%M:%S.%e] [%l] %v");
  // Logging must work inside error handlers, so a bad level is reported here and refused only by
  // who asks level_from_environment() directly.
  try {
    made->set_level(to_spdlog(level_from_environment()));
  } catch (const Error& error) {
    made->warn("{}", error.what());
  }
  return made;
}

// Built once and never destroyed: threads may still log while the process ends. A person needs no
// date beside each line; a file does.
spdlog::logger& logger(bool person) {
  static spdlog::logger* const kDated = make_dated_logger().release();
  static spdlog::logger* const kPlain = [] {
    auto made = make_logger("%v");
    made->set_level(kDated->level());
    return made.release();
  }();
  return person ? *kPlain : *kDated;
}

}  // namespace

Level level_from_environment() {
  const std::optional<std::string> text = env_string("PENTATRON_LOG_LEVEL");
  if (!text || *text == "info") return Level::kInfo;
  if (*text == "debug") return Level::kDebug;
  if (*text == "warn") return Level::kWarn;
  if (*text == "error") return Level::kError;
  PENTATRON_THROW(kConfig, "PENTATRON_LOG_LEVEL is '{}', expected debug, info, warn or error",
                  *text);
}

void set_level(Level level) {
  for (const bool person : {true, false}) logger(person).set_level(to_spdlog(level));
}

void set_thread_label(std::string label) { label_of_this_thread() = std::move(label); }

const std::string& thread_label() { return label_of_this_thread(); }

void write(Level level, std::string_view message) {
  const Terminal terminal = look_at_terminal(STDERR_FILENO);
  spdlog::logger& to = logger(terminal.present);
  if (!to.should_log(to_spdlog(level))) return;
  const std::string& label = thread_label();
  const screen::Turn turn;
  to.log(to_spdlog(level), "{}{}{}", terminal.present ? title_of(level, terminal) : std::string(),
         label.empty() ? "" : fmt::format("[{}] ", label), message);
}

void print_line(std::string_view line) {
  if (!screen::is_terse()) screen::print(line);
}

}  // namespace pentatron::log
