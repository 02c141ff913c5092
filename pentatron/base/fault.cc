// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/fault.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <mutex>
#include <optional>
#include <string>

#include "pentatron/base/env.h"
#include "pentatron/base/error.h"

namespace pentatron {
namespace {

constexpr std::array<std::string_view, 4> kKindNames = {"write", "sync", "rename", "unlink"};
constexpr const char* kStopVariable = "PENTATRON_FAULT_STOP_AT";

struct FaultPlan {
  bool active = false;  // the one branch of an undisturbed run
  bool fail = false;    // pretend a full device instead of stopping
  std::optional<FaultKind> kind;
  std::uint64_t n = 0;
  int log_fd = -1;
  bool no_unnamed = false;
  std::atomic<std::uint64_t> begun{0};  // operations of `kind`, counted before they run
  std::atomic<std::uint64_t> done{0};   // and after they succeeded

  FaultPlan() {
    if (const auto text = env_string(kStopVariable)) read_stop(*text);
    no_unnamed = env_string("PENTATRON_FAULT_NO_UNNAMED").has_value();
    if (const auto path = env_string("PENTATRON_FAULT_LOG")) {
      log_fd = ::open(path->c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
      PENTATRON_CHECK(log_fd >= 0, kIo, "cannot open PENTATRON_FAULT_LOG file {}", *path);
      active = true;
    }
  }

  void read_stop(std::string_view text) {
    std::string_view rest = text;
    constexpr std::string_view kError = "error:";
    if (rest.starts_with(kError)) {
      fail = true;
      rest.remove_prefix(kError.size());
    }
    const std::size_t colon = rest.find(':');
    for (std::size_t i = 0; i < kKindNames.size(); ++i) {
      if (rest.substr(0, colon) == kKindNames[i]) kind = static_cast<FaultKind>(i);
    }
    const std::string_view number =
        colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
    const auto [stop, code] = std::from_chars(number.data(), number.data() + number.size(), n);
    PENTATRON_CHECK(kind && code == std::errc() && stop == number.data() + number.size() && n >= 1,
                    kConfig, "{} is '{}', expected [error:]<write|sync|rename|unlink>:<n from 1>",
                    kStopVariable, text);
    active = true;
  }
};

FaultPlan& plan() {
  static FaultPlan instance;
  return instance;
}

}  // namespace

bool fault_before(FaultKind kind, std::string_view /*path*/) {
  FaultPlan& now = plan();
  if (!now.active || !now.fail || now.kind != kind) return false;
  return now.begun.fetch_add(1) + 1 == now.n;
}

void fault_after(FaultKind kind, std::string_view path) {
  FaultPlan& now = plan();
  if (!now.active) return;
  if (now.log_fd >= 0) {
    const std::string line =
        fmt::format("{} {}\n", kKindNames[static_cast<std::size_t>(kind)], path);
    // One write call: lines of several threads or processes do not mix.
    const ssize_t written = ::write(now.log_fd, line.data(), line.size());
    PENTATRON_CHECK(written == static_cast<ssize_t>(line.size()), kIo,
                    "cannot append to PENTATRON_FAULT_LOG");
  }
  if (!now.fail && now.kind == kind && now.done.fetch_add(1) + 1 == now.n) {
    ::kill(::getpid(), SIGKILL);
    // Another thread may take the signal first; nothing more may happen on this one.
    for (;;) ::pause();
  }
}

bool fault_refuses_unnamed_files() { return plan().no_unnamed; }

}  // namespace pentatron
