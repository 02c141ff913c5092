// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <httplib.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

// A real HTTP server of range requests on the loopback address, for tests.
namespace pentatron::http::testing {

class RangeServer final {
 public:
  // Called before each answer, with the number of the request (from 0) and of its path's request.
  // True: it has answered by itself.
  using Disturbance = std::function<bool(const httplib::Request&, httplib::Response&, int number)>;

  RangeServer() : RangeServer(std::make_unique<httplib::Server>(), "http") {}
  // https, with a certificate and its key in PEM files.
  RangeServer(const std::string& certificate, const std::string& key)
      : RangeServer(std::make_unique<httplib::SSLServer>(certificate.c_str(), key.c_str()),
                    "https") {}
  ~RangeServer() {
    server_->stop();
    thread_.join();
  }
  RangeServer(const RangeServer&) = delete;
  RangeServer& operator=(const RangeServer&) = delete;

  void put(const std::string& path, std::string content, std::string version) {
    const std::lock_guard lock(mutex_);
    objects_[path] = {std::move(content), std::move(version)};
  }
  void disturb(Disturbance disturbance) {
    const std::lock_guard lock(mutex_);
    disturbance_ = std::move(disturbance);
    requests_ = 0;
  }
  [[nodiscard]] std::string url(const std::string& path) const {
    return scheme_ + "://127.0.0.1:" + std::to_string(port_) + path;
  }
  [[nodiscard]] int requests() const { return requests_; }

 private:
  RangeServer(std::unique_ptr<httplib::Server> server, std::string scheme)
      : server_(std::move(server)), scheme_(std::move(scheme)) {
    server_->Get(".*", [this](const httplib::Request& request, httplib::Response& response) {
      serve(request, response);
    });
    server_->set_tcp_nodelay(true);
    server_->set_keep_alive_max_count(1000);
    port_ = server_->bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_->listen_after_bind(); });
    // stop() before the loop runs would be lost.
    while (!server_->is_running()) std::this_thread::yield();
  }

  void serve(const httplib::Request& request, httplib::Response& response) {
    Disturbance disturbance;
    {
      const std::lock_guard lock(mutex_);
      disturbance = disturbance_;
    }
    const int number = requests_++;
    if (disturbance && disturbance(request, response, number)) return;
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(request.path);
    if (found == objects_.end()) {
      response.status = 404;
      return;
    }
    if (!found->second.second.empty()) response.set_header("ETag", found->second.second);
    response.set_content(found->second.first, "application/octet-stream");
  }

  std::unique_ptr<httplib::Server> server_;
  std::string scheme_;
  std::mutex mutex_;
  std::map<std::string, std::pair<std::string, std::string>> objects_;  // content, version
  Disturbance disturbance_;
  std::atomic<int> requests_ = 0;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace pentatron::http::testing
