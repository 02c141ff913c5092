// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <csignal>
#include <cstdio>

#include "apps/command.h"
#include "apps/monitor_library.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/signals.h"

namespace pentatron::apps {

int watch(const Words& words) {
  const Flags flags(
      "watch",
      "Serves a page that follows the runs of a folder: every metrics file (*.jsonl, "
      "written by --metrics-file) in it.",
      {"DIR"},
      {{"--host", "ADDRESS", "where to listen; 0.0.0.0: for other machines too", "127.0.0.1"},
       {"--port", "N", "0: a free one", "6007"}},
      words);
  if (flags.help()) return 0;
  constexpr std::int64_t kHighestPort = 65535;
  const std::int64_t port = flags.integer("--port", 0);
  PENTATRON_CHECK(port <= kHighestPort, kConfig, "--port {}: expected at most {}", port,
                  kHighestPort);
  const SignalFlag stop({SIGINT, SIGTERM});
  load_monitor_library().serve(
      flags.positional(0), flags.text("--host"), static_cast<int>(port),
      [&flags](const std::string& url) {
        log::print_line(
            fmt::format("watching {} at {} (Ctrl-C ends it)", flags.positional(0), url));
        (void)std::fflush(stdout);
      },
      [&stop] { return stop.triggered(); });
  return 0;
}

}  // namespace pentatron::apps
