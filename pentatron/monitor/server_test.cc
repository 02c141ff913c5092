// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/server.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/monitor/page.h"

namespace pentatron::monitor {
namespace {

using nlohmann::json;

std::string train(std::int64_t iteration, double loss) {
  return json{{"kind", "train"}, {"iteration", iteration}, {"lm_loss", loss}}.dump() + "\n";
}

// A server of a temporary folder on a thread of its own.
class Serving {
 public:
  Serving() : server_(folder.path(), {}), thread_([this] { server_.run(); }) {
    // stop() before the loop runs would be lost.
    while (!client().Get("/api/runs")) std::this_thread::yield();
  }
  ~Serving() {
    server_.stop();
    thread_.join();
  }
  [[nodiscard]] httplib::Client client() const {
    return httplib::Client("127.0.0.1", server_.port());
  }
  [[nodiscard]] httplib::Result get(const std::string& path,
                                    const httplib::Headers& headers = {}) const {
    httplib::Result result = client().Get(path, headers);
    EXPECT_TRUE(result) << path;
    return result;
  }
  [[nodiscard]] int port() const { return server_.port(); }
  [[nodiscard]] std::string url() const { return server_.url(); }

  TempFolder folder;

 private:
  MonitorServer server_;
  std::thread thread_;
};

TEST(MonitorServer, ServesThePageWithoutForeignParts) {
  const Serving serving;
  const auto page = serving.get("/");
  EXPECT_EQ(page->status, 200);
  EXPECT_EQ(page->body, page_html());
  EXPECT_EQ(page->get_header_value("Content-Type"), "text/html; charset=utf-8");
  EXPECT_EQ(page->get_header_value("X-Content-Type-Options"), "nosniff");
  EXPECT_NE(page->get_header_value("Content-Security-Policy").find("default-src 'none'"),
            std::string::npos);
  EXPECT_EQ(serving.get("/page.css")->body, page_css());
  EXPECT_EQ(serving.get("/page.js")->body, page_js());
  for (const std::string_view part : {page_html(), page_css(), page_js()}) {
    EXPECT_FALSE(part.empty());
    // The two addresses are names of formats.
    std::string text(part);
    for (const char* known : {"http://www.w3.org/2000/svg", "'http://www.w3.org/2000/svg'"}) {
      for (std::size_t at = text.find(known); at != std::string::npos; at = text.find(known)) {
        text.erase(at, std::string(known).size());
      }
    }
    EXPECT_EQ(text.find("http:"), std::string::npos);
    EXPECT_EQ(text.find("https:"), std::string::npos);
    EXPECT_EQ(text.find("innerHTML"), std::string::npos);
  }
  EXPECT_EQ(serving.url(), "http://127.0.0.1:" + std::to_string(serving.port()) + "/");
}

TEST(MonitorServer, AnswersWithWhatWasAppended) {
  const Serving serving;
  const auto file = serving.folder.path() / "run.jsonl";
  EXPECT_EQ(json::parse(serving.get("/api/runs")->body)["runs"].size(), 0U);
  std::ofstream(file) << train(1, 3.5) << train(2, 3.25);
  const auto runs = [&serving](std::size_t records) {
    json answer;
    // The server looks at the folder at most every 0.2 s.
    for (int i = 0; i < 500; ++i) {
      answer = json::parse(serving.get("/api/runs")->body)["runs"];
      if (!answer.empty() && answer[0]["num_records"] == records) return answer[0];
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ADD_FAILURE() << answer.dump();
    return json();
  };
  json run = runs(2);
  EXPECT_EQ(run["name"], "run");
  const std::string ask = "/api/records?run=0&generation=" + run["generation"].dump() + "&from=";
  EXPECT_EQ(json::parse(serving.get(ask + "0")->body)["records"][1][2], 3.25);
  std::ofstream(file, std::ios::app) << train(3, 3.125);
  run = runs(3);
  const json news = json::parse(serving.get(ask + "2")->body);
  ASSERT_EQ(news["records"].size(), 1U);
  EXPECT_EQ(news["records"][0][1], 3);
  EXPECT_EQ(news["records"][0][2], 3.125);
}

TEST(MonitorServer, RefusesWhatItShould) {
  const Serving serving;
  std::ofstream(serving.folder.path() / "run.jsonl") << train(1, 1);
  std::ofstream(serving.folder.path() / "secret.txt") << "secret";
  for (const char* path :
       {"/secret.txt", "/../secret.txt", "/%2e%2e/secret.txt", "/run.jsonl", "/etc/passwd",
        "//etc/passwd", "/page/page.js", "/api", "/api/records?run=99&generation=0&from=0"}) {
    EXPECT_EQ(serving.get(path)->status, 404) << path;
    EXPECT_EQ(serving.get(path)->body.find("secret"), std::string::npos);
  }
  for (const char* query :
       {"", "?run=0", "?run=a&generation=0&from=0", "?run=0&generation=99999999999999999999&from=0",
        "?run=../../x&generation=0&from=0"}) {
    EXPECT_EQ(serving.get(std::string("/api/records") + query)->status, 400) << query;
  }
  httplib::Client client = serving.client();
  EXPECT_NE(client.Post("/api/runs", "x", "text/plain")->status, 200);
  EXPECT_GE(client.Post("/", std::string(1 << 16, 'x'), "text/plain")->status, 400);
}

TEST(MonitorServer, AnswersOnlyThisMachinesNames) {
  const Serving serving;
  const std::string port = std::to_string(serving.port());
  for (const std::string& host :
       {"127.0.0.1:" + port, "localhost:" + port, std::string("[::1]:1")}) {
    EXPECT_EQ(serving.get("/api/runs", {{"Host", host}})->status, 200) << host;
  }
  for (const char* host :
       {"evil.example", "evil.example:80", "127.evil.example", "localhost.evil.example"}) {
    EXPECT_EQ(serving.get("/api/runs", {{"Host", host}})->status, 403) << host;
  }
}

TEST(MonitorServer, ATakenPortIsAnError) {
  const Serving serving;
  expect_error(
      ErrorKind::kIo, "cannot listen on 127.0.0.1 port " + std::to_string(serving.port()),
      [&] { const MonitorServer second(serving.folder.path(), {.port = serving.port()}); });
}

}  // namespace
}  // namespace pentatron::monitor
