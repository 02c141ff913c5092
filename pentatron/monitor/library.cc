// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/library.h"

#include <chrono>
#include <thread>

#include "pentatron/monitor/server.h"

namespace pentatron::monitor {
namespace {

void serve(const std::filesystem::path& folder, const std::string& host, int port,
           const std::function<void(const std::string& url)>& ready,
           const std::function<bool()>& stop) {
  constexpr std::chrono::milliseconds kInterval(50);
  MonitorServer server(folder, {.host = host, .port = port});
  std::thread serving([&server] { server.run(); });
  ready(server.url());
  while (!stop()) std::this_thread::sleep_for(kInterval);
  server.stop();
  serving.join();
}

constexpr Library kLibrary{.plot = &plot, .serve = &serve};

}  // namespace
}  // namespace pentatron::monitor

const pentatron::monitor::Library* pentatron_monitor_library() {
  return &pentatron::monitor::kLibrary;
}
