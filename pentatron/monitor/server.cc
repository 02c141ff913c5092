// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/server.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "pentatron/base/log.h"
#include "pentatron/monitor/monitor_answers.h"
#include "pentatron/monitor/run_store.h"

namespace pentatron::monitor {
namespace {

// Reads the store's files until it is destroyed.
class Reading final {
 public:
  explicit Reading(RunStore& store) : thread_([this, &store] { run(store); }) {}
  ~Reading() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  void run(RunStore& store) {
    constexpr std::chrono::milliseconds kInterval(200);
    while (true) {
      bool more = false;
      try {
        more = store.read_some();
      } catch (const std::exception& error) {
        log::warn("the folder cannot be read: {}", error.what());
      }
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, more ? std::chrono::milliseconds(0) : kInterval,
                     [this] { return stop_; });
      if (stop_) return;
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace

struct MonitorServer::State {
  State(const std::filesystem::path& folder, ServerOptions chosen)
      : options(std::move(chosen)),
        store(folder),
        server(
            options.host, options.port,
            [this](const HttpRequest& request) { return answer(request); }, options.limits) {}

  HttpAnswer answer(const HttpRequest& request) {
    if (options.on_request) options.on_request(request.path);
    if (is_loopback(options.host) && !is_loopback(request.host)) {
      return {.status = 403, .body = "this server answers on this machine only\n"};
    }
    return answer_request(store, request);
  }

  ServerOptions options;
  RunStore store;
  HttpServer server;
};

MonitorServer::MonitorServer(const std::filesystem::path& folder, ServerOptions options)
    : state_(std::make_unique<State>(folder, std::move(options))) {
  // The first answer has runs already, if not all of them whole.
  (void)state_->store.read_some();
}
MonitorServer::~MonitorServer() = default;

int MonitorServer::port() const { return state_->server.port(); }

std::string MonitorServer::url() const {
  const std::string& host = state_->options.host;
  return fmt::format("http://{}:{}/", host.find(':') != std::string::npos ? "[" + host + "]" : host,
                     port());
}

void MonitorServer::run() {
  const Reading reading(state_->store);
  state_->server.run();
}

void MonitorServer::stop() { state_->server.stop(); }

}  // namespace pentatron::monitor
