// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace pentatron::monitor {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: a free one
  // Called on the server's thread with each path that is asked for, before the answer is made.
  std::function<void(std::string_view path)> on_request = {};
};

// Serves the page of a folder's runs: /, /page.css, /page.js, /api/runs, /api/records?run=&
// generation=&from=. Nothing of the file system can be named by a request. On a loopback address
// only requests that name this machine are answered (a page elsewhere cannot read through the
// user's browser).
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
  // Serves until stop(), which may come from another thread.
  void run();
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pentatron::monitor
