// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/lock_holder.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"

namespace pentatron::checkpoint {
namespace {

constexpr std::uint64_t kMaxBootIdBytes = 256;

std::string host_name() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) return "an unknown host";
  return host.data();
}

// Empty where the system does not tell: then no process counts as of this machine.
std::string boot_id() {
  try {
    std::string id = read_text_file("/proc/sys/kernel/random/boot_id", kMaxBootIdBytes);
    while (!id.empty() && id.back() == '\n') id.pop_back();
    return id;
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

LockHolder this_process() {
  static std::atomic<std::uint64_t> serial{0};
  LockHolder self;
  self.host = host_name();
  self.pid = ::getpid();
  self.boot_id = boot_id();
  const auto now = std::chrono::system_clock::now();
  self.started = fmt::format("{:%Y-%m-%d %H:%M:%S} UTC",
                             fmt::gmtime(std::chrono::system_clock::to_time_t(now)));
  self.token = fmt::format("{}/{}/{}/{}/{}", self.host, self.boot_id, self.pid,
                           now.time_since_epoch().count(), serial++);
  return self;
}

std::string describe(const LockHolder& holder) {
  return fmt::format("process {} on {}, started {}", holder.pid, holder.host, holder.started);
}

std::string lock_text(const LockHolder& holder) {
  const nlohmann::json json = {{"host", holder.host},
                               {"pid", holder.pid},
                               {"boot_id", holder.boot_id},
                               {"started", holder.started},
                               {"token", holder.token},
                               // Equal lengths: a beat overwrites in place, on a full disk too.
                               {"beats", fmt::format("{:020}", holder.beats)}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::optional<LockHolder> parse_lock(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  try {
    LockHolder holder;
    holder.host = json.at("host").get<std::string>();
    holder.pid = json.at("pid").get<std::int64_t>();
    holder.boot_id = json.at("boot_id").get<std::string>();
    holder.started = json.at("started").get<std::string>();
    holder.token = json.at("token").get<std::string>();
    holder.beats = std::stoull(json.at("beats").get<std::string>());
    return holder;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace pentatron::checkpoint
