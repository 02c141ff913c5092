// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/server.h"

#include <fmt/format.h>
#include <httplib.h>

#include <charconv>
#include <optional>

#include "pentatron/base/error.h"
#include "pentatron/monitor/page.h"
#include "pentatron/monitor/run_store.h"

namespace pentatron::monitor {
namespace {

constexpr double kRefreshSeconds = 0.2;
constexpr std::size_t kLongestRequest = 4096;

bool is_loopback(const std::string& host) {
  const bool digits = host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "::1" || (digits && host.starts_with("127."));
}

// The host of a Host header, without its port.
std::string host_name(const std::string& header) {
  if (header.starts_with("[")) return header.substr(1, header.find(']') - 1);
  return header.substr(0, header.find(':'));
}

std::optional<std::int64_t> integer_of(const httplib::Request& request, const char* name) {
  const std::string text = request.get_param_value(name);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

void refuse(httplib::Response& response, int status, const std::string& why) {
  response.status = status;
  response.set_content(why + "\n", "text/plain; charset=utf-8");
}

}  // namespace

struct MonitorServer::State {
  State(const std::filesystem::path& folder, ServerOptions chosen)
      : options(std::move(chosen)), store(folder) {}

  ServerOptions options;
  RunStore store;
  httplib::Server server;
  int port = 0;

  void set_up() {
    server.set_payload_max_length(kLongestRequest);
    // Not SO_REUSEPORT, which the library would set: two servers would share a port.
    server.set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    server.set_default_headers(
        {{"Content-Security-Policy",
          "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
          "'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
         {"X-Content-Type-Options", "nosniff"},
         {"Referrer-Policy", "no-referrer"},
         {"Cache-Control", "no-store"}});
    server.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          if (options.on_request) options.on_request(request.path);
          const std::string host = host_name(request.get_header_value("Host"));
          if (is_loopback(options.host) && !is_loopback(host)) {
            refuse(response, 403, "this server answers on this machine only");
            return httplib::Server::HandlerResponse::Handled;
          }
          return httplib::Server::HandlerResponse::Unhandled;
        });
    const auto page = [this](const char* path, std::string_view content, const char* type) {
      server.Get(path, [content, type](const httplib::Request&, httplib::Response& response) {
        response.set_content(content.data(), content.size(), type);
      });
    };
    page("/", page_html(), "text/html; charset=utf-8");
    page("/page.css", page_css(), "text/css; charset=utf-8");
    page("/page.js", page_js(), "text/javascript; charset=utf-8");
    server.Get("/api/runs", [this](const httplib::Request&, httplib::Response& response) {
      store.refresh(kRefreshSeconds);
      response.set_content(store.runs_json(), "application/json");
    });
    server.Get("/api/records",
               [this](const httplib::Request& request, httplib::Response& response) {
                 const auto run = integer_of(request, "run");
                 const auto generation = integer_of(request, "generation");
                 const auto from = integer_of(request, "from");
                 if (!run || !generation || !from) {
                   return refuse(response, 400, "run, generation and from are integers");
                 }
                 std::string answer = store.records_json(*run, *generation, *from);
                 if (answer.empty()) return refuse(response, 404, "no such run");
                 response.set_content(std::move(answer), "application/json");
               });
  }
};

MonitorServer::MonitorServer(const std::filesystem::path& folder, ServerOptions options)
    : state_(std::make_unique<State>(folder, std::move(options))) {
  State& state = *state_;
  state.set_up();
  const std::string& host = state.options.host;
  if (state.options.port == 0) {
    state.port = state.server.bind_to_any_port(host);
  } else if (state.server.bind_to_port(host, state.options.port)) {
    state.port = state.options.port;
  }
  PENTATRON_CHECK(
      state.port > 0, kIo,
      "cannot listen on {} port {}: is the port taken or the address another machine's?", host,
      state.options.port);
}

MonitorServer::~MonitorServer() = default;

int MonitorServer::port() const { return state_->port; }

std::string MonitorServer::url() const {
  const std::string& host = state_->options.host;
  return fmt::format("http://{}:{}/", host.find(':') != std::string::npos ? "[" + host + "]" : host,
                     state_->port);
}

void MonitorServer::run() { state_->server.listen_after_bind(); }
void MonitorServer::stop() { state_->server.stop(); }

}  // namespace pentatron::monitor
