// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/monitor/http_request.h"

namespace pentatron::monitor {

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body = {};
  std::string file_name = {};  // letters, digits, '.', '-', '_': a file to save
  // A body of unknown length instead: the next piece, empty at its end.
  std::function<std::string()> next_piece = {};
};

struct HttpLimits {
  // Where all are taken, the one that waits for its request longest makes room.
  std::size_t max_connections = 256;
  double head_seconds = 5;    // from a connection's or request's first byte to the head's end
  double idle_seconds = 30;   // between requests
  double write_seconds = 20;  // without a byte taken by the client
  // Answers that clients have not taken yet; beyond it the one that waits longest is given up.
  std::size_t max_pending_bytes = 128 << 20;
};

// A small HTTP/1.1 server for pages that are only read, on one thread that never waits for a
// client: requests have no body and a head of kLongestHead bytes, ranges and encodings are ignored,
// every wait has a limit. Headers that keep a page to itself (content policy and such) go with
// every answer.
class HttpServer final {
 public:
  using Handler = std::function<HttpAnswer(const HttpRequest& request)>;

  // Binds and listens at once: connections wait until run(). kIo: the address is taken or another
  // machine's.
  HttpServer(const std::string& host, int port, Handler handler, HttpLimits limits = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] int port() const;
  // Serves until stop(), which may come from any thread, and before run() too.
  void run();
  void stop();

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace pentatron::monitor
