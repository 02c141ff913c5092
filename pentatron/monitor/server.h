// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "pentatron/monitor/http_server.h"

namespace pentatron::monitor {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: a free one
  // Called on the server's thread with each path that is asked for, before the answer is made.
  std::function<void(std::string_view path)> on_request = {};
  HttpLimits limits = {};
};

// Serves the page of a folder's runs: / and the other files of page/, /api/runs, /api/series?runs=
// &fields=&axis=&buckets= (and from=, to=, smoothing=), /api/run?run=, /api/csv?run=; JSON as
// RunStore has it. Nothing of the file system can be named by a request. On a loopback address only
// requests that name this machine are answered (a page elsewhere cannot read through the user's
// browser). Files are read on a thread of their own, so that no answer waits for one.
class MonitorServer final {
 public:
  // Binds at once: port() is known and connections wait until run(). kIo: not a folder, or the
  // address is taken.
  MonitorServer(const std::filesystem::path& folder, ServerOptions options);
  ~MonitorServer();
  MonitorServer(const MonitorServer&) = delete;
  MonitorServer& operator=(const MonitorServer&) = delete;

  [[nodiscard]] int port() const;
  [[nodiscard]] std::string url() const;
  // Serves until stop(), which may come from another thread, and before run() too.
  void run();
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pentatron::monitor
