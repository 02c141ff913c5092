// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/server.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/base/timer.h"
#include "pentatron/monitor/page.h"
#include "pentatron/monitor/test_client.h"

namespace pentatron::monitor {
namespace {

using nlohmann::json;

std::string train(std::int64_t iteration, double loss) {
  return json{{"kind", "train"}, {"iteration", iteration}, {"lm_loss", loss}}.dump() + "\n";
}

// A server of a temporary folder on a thread of its own.
class Serving {
 public:
  explicit Serving(HttpLimits limits = {})
      : server_(folder.path(), {.limits = limits}), thread_([this] { server_.run(); }) {}
  ~Serving() {
    server_.stop();
    thread_.join();
  }
  [[nodiscard]] TestAnswer get(const std::string& path,
                               const std::string& host = "localhost") const {
    return monitor::get(server_.port(), path, host);
  }
  [[nodiscard]] int port() const { return server_.port(); }
  [[nodiscard]] std::string url() const { return server_.url(); }
  // The only run, once it has so many records.
  [[nodiscard]] json run_with(std::size_t records) const {
    json runs;
    for (int i = 0; i < 1000; ++i) {
      runs = json::parse(get("/api/runs").body)["runs"];
      if (!runs.empty() && runs[0]["num_records"] == records) return runs[0];
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ADD_FAILURE() << runs.dump();
    return {};
  }

  TempFolder folder;

 private:
  MonitorServer server_;
  std::thread thread_;
};

// Bytes of memory of this process.
std::int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::int64_t pages = 0;
  in >> pages >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

TEST(MonitorServer, ServesThePageWithoutForeignParts) {
  const Serving serving;
  const TestAnswer page = serving.get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.body.find("<title>pentatron watch</title>"), std::string::npos);
  for (const char* header :
       {"Content-Type: text/html; charset=utf-8\r\n", "X-Content-Type-Options: nosniff\r\n",
        "Content-Security-Policy: default-src 'none'; script-src 'self';"}) {
    EXPECT_NE(page.head.find(header), std::string::npos) << page.head;
  }
  EXPECT_GT(page_files().size(), 10U);
  for (const EmbeddedFile& file : page_files()) {
    const std::string name(file.name);
    if (name != "page.html") {
      const TestAnswer part = serving.get("/" + name);
      EXPECT_EQ(part.status, 200) << name;
      EXPECT_EQ(part.body, file.content) << name;
      // Browsers run nothing of another type.
      const char* type =
          name.ends_with(".js") ? "Content-Type: text/javascript" : "Content-Type: text/css";
      EXPECT_NE(part.head.find(type), std::string::npos) << part.head;
    }
    std::string text(file.content);
    // The address is the name of a format.
    const std::string known = "http://www.w3.org/2000/svg";
    for (std::size_t at = 0; (at = text.find(known)) != std::string::npos;) {
      text.erase(at, known.size());
    }
    for (const char* never : {"http:", "https:", "innerHTML", "//cdn", "eval("}) {
      EXPECT_EQ(text.find(never), std::string::npos) << name << never;
    }
  }
  EXPECT_EQ(serving.url(), "http://127.0.0.1:" + std::to_string(serving.port()) + "/");
}

TEST(MonitorServer, AnswersWithWhatWasAppended) {
  const Serving serving;
  const auto file = serving.folder.path() / "run.jsonl";
  EXPECT_EQ(json::parse(serving.get("/api/runs").body)["runs"].size(), 0U);
  std::ofstream(file) << train(1, 3.5) << train(2, 3.25);
  const json run = serving.run_with(2);
  EXPECT_EQ(run["name"], "run");
  const std::string ask = "/api/series?fields=lm_loss&axis=iteration&buckets=10&runs=";
  json series = json::parse(serving.get(ask + "0").body)["runs"][0];
  EXPECT_EQ(series["series"]["lm_loss"], json::parse("[1,3.5,2,3.25]"));
  std::ofstream(file, std::ios::app) << train(3, 3.125);
  (void)serving.run_with(3);
  const std::string known = "0:" + series["generation"].dump() + ":" + series["width"].dump() +
                            ":" + series["last"].dump();
  series = json::parse(serving.get(ask + known).body)["runs"][0];
  EXPECT_EQ(series["since"], 2);
  EXPECT_EQ(series["series"]["lm_loss"], json::parse("[2,3.25,3,3.125]"));
  const TestAnswer csv = serving.get("/api/csv?run=0");
  EXPECT_NE(csv.head.find("filename=\"run.csv\""), std::string::npos) << csv.head;
  EXPECT_NE(csv.body.find("\ntrain,,3,0,0,3.125,"), std::string::npos) << csv.body;
}

TEST(MonitorServer, RefusesWhatItShould) {
  const Serving serving;
  std::ofstream(serving.folder.path() / "run.jsonl") << train(1, 1);
  std::ofstream(serving.folder.path() / "secret.txt") << "secret";
  (void)serving.run_with(1);
  for (const char* path :
       {"/secret.txt", "/../secret.txt", "/%2e%2e/secret.txt", "/run.jsonl", "/etc/passwd",
        "//etc/passwd", "/page/main.js", "/page.html/", "/api", "/api/run?run=99",
        "/api/csv?run=-1", "/api/csv?run=9223372036854775807"}) {
    EXPECT_EQ(serving.get(path).status, 404) << path;
    EXPECT_EQ(serving.get(path).body.find("secret"), std::string::npos);
  }
  const std::string good = "runs=0&fields=lm_loss&axis=iteration&buckets=10";
  EXPECT_EQ(serving.get("/api/series?" + good).status, 200);
  for (const char* query :
       {"", "runs=a&fields=lm_loss&axis=iteration&buckets=10",
        "runs=0:1&fields=lm_loss&axis=iteration&buckets=10",
        "runs=0:1:0:inf&fields=lm_loss&axis=iteration&buckets=10",
        "runs=0:1:nan:0&fields=lm_loss&axis=iteration&buckets=10",
        "runs=0:1:0:nothing&fields=lm_loss&axis=iteration&buckets=10",
        "runs=../x&fields=lm_loss&axis=iteration&buckets=10",
        "runs=0&fields=text&axis=iteration&buckets=10", "runs=0&fields=lm_loss&axis=y&buckets=10",
        "runs=0&fields=lm_loss&axis=time&buckets=0",
        "runs=0&fields=lm_loss&axis=time&buckets=1000000",
        "runs=0&fields=lm_loss&axis=time&buckets=5&smoothing=1",
        "runs=99999999999999999999&fields=lm_loss&axis=time&buckets=5"}) {
    EXPECT_EQ(serving.get(std::string("/api/series?") + query).status, 400) << query;
  }
  // Ends that are no numbers or the wrong way round, and runs that are not there.
  for (const char* more :
       {"&from=nan&to=inf", "&from=9&to=1", "&from=-1e300&to=1e300", "&smoothing=0.99"}) {
    EXPECT_EQ(serving.get("/api/series?" + good + more).status, 200) << more;
  }
  std::string too_many = "runs=0";
  for (int i = 0; i < 200; ++i) too_many += ",0";
  EXPECT_EQ(serving.get("/api/series?fields=lm_loss&axis=time&buckets=5&" + too_many).status, 400);
}

TEST(MonitorServer, AnswersOnlyThisMachinesNames) {
  const Serving serving;
  const std::string port = std::to_string(serving.port());
  for (const std::string& host :
       {"127.0.0.1:" + port, "localhost:" + port, std::string("[::1]:1")}) {
    EXPECT_EQ(serving.get("/api/runs", host).status, 200) << host;
  }
  for (const char* host :
       {"evil.example", "evil.example:80", "127.evil.example", "localhost.evil.example"}) {
    EXPECT_EQ(serving.get("/api/runs", host).status, 403) << host;
  }
}

TEST(MonitorServer, ATakenPortIsAnError) {
  const Serving serving;
  expect_error(
      ErrorKind::kIo, "cannot listen on 127.0.0.1 port " + std::to_string(serving.port()),
      [&] { const MonitorServer second(serving.folder.path(), {.port = serving.port()}); });
}

TEST(MonitorServer, StopBeforeRunIsNotLost) {
  const TempFolder folder;
  MonitorServer server(folder.path(), {});
  server.stop();
  server.run();
}

TEST(MonitorServer, EndlessHeadersAndBodiesCostNoMemory) {
  const Serving serving;
  (void)serving.get("/");
  const std::int64_t before = resident_bytes();
  const std::string block(1 << 20, 'x');
  for (const char* start : {"GET / HTTP/1.1\r\nHost: a\r\nA: ",
                            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
                            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 400000000\r\n\r\n"}) {
    const TestClient client(serving.port());
    ASSERT_TRUE(client.send(start));
    int sent = 0;
    while (sent < 400 && client.send(block)) ++sent;
    EXPECT_LT(sent, 400) << "the server went on reading " << start;
  }
  EXPECT_LT(resident_bytes() - before, 16 << 20);
  // 10,000 headers are refused with words.
  const TestClient client(serving.port());
  std::string many = "GET / HTTP/1.1\r\nHost: localhost\r\n";
  for (int i = 0; i < 1000; ++i) many += "A: b\r\n";
  (void)client.send(many + "\r\n");
  EXPECT_EQ(split_answer(client.read_to_end()).status, 431);
}

TEST(MonitorServer, SlowAndIdleConnectionsStarveNobody) {
  const Serving serving;
  std::vector<TestClient> slow;
  for (int i = 0; i < 40; ++i) {
    slow.emplace_back(serving.port());
    (void)slow.back().send("GET / HT");
  }
  // More than the server keeps: each new one takes the place of the oldest.
  std::vector<TestClient> idle;
  for (int i = 0; i < 500; ++i) idle.emplace_back(serving.port());
  const Timer timer;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(serving.get("/api/runs").status, 200);
  EXPECT_LT(timer.seconds(), 2);
  EXPECT_TRUE(slow[0].closed_within(1000));
}

TEST(MonitorServer, WaitsHaveLimits) {
  const Serving serving({.head_seconds = 0.3, .idle_seconds = 0.6, .write_seconds = 0.3});
  const TestClient slow(serving.port());
  ASSERT_TRUE(slow.send("GET / HTTP/1.1\r\n"));
  // A byte now and then does not move the limit.
  const Timer timer;
  while (timer.seconds() < 10 && slow.send("A") && !slow.closed_within(50)) {
  }
  EXPECT_LT(timer.seconds(), 5);
  const TestClient idle(serving.port());
  EXPECT_TRUE(idle.closed_within(5000));
}

TEST(HttpServer, AnswersThatNobodyTakesHaveALimit) {
  const std::string body(16 << 20, 'x');
  HttpServer server("127.0.0.1", 0, [&](const HttpRequest&) { return HttpAnswer{.body = body}; },
                    {.max_pending_bytes = 40 << 20});
  std::thread thread([&server] { server.run(); });
  std::vector<TestClient> greedy;
  for (int i = 0; i < 6; ++i) {
    greedy.emplace_back(server.port());
    (void)greedy.back().send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(get(server.port(), "/").body.size(), body.size()) << "the newest has its answer";
  EXPECT_LT(greedy[0].read_to_end().size(), body.size()) << "the oldest was given up";
  server.stop();
  thread.join();
}

TEST(MonitorServer, RangesAreIgnored) {
  const Serving serving;
  const TestClient client(serving.port());
  std::string ranges = "bytes=0-";
  for (int i = 0; i < 900; ++i) ranges += ",0-";
  (void)client.send("GET /main.js HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nRange: " +
                    ranges + "\r\n\r\n");
  const TestAnswer answer = split_answer(client.read_to_end());
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, serving.get("/main.js").body);
}

TEST(MonitorServer, KeepsConnectionsAndAnswersPipelinedRequestsInTurn) {
  const Serving serving;
  const TestClient client(serving.port());
  const std::string ask = "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  (void)client.send("GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n" + ask + ask +
                    "GET /page.css HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  const std::string text = client.read_to_end();
  EXPECT_EQ(text.find("HTTP/1.1 404"), 0U);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\0'), 0);
  std::size_t answers = 0;
  for (std::size_t at = 0; (at = text.find("HTTP/1.1 ", at)) != std::string::npos; ++at) ++answers;
  EXPECT_EQ(answers, 4U);
  EXPECT_TRUE(text.ends_with(serving.get("/page.css").body));
}

// A file of a million records, 200 MB: answers come at once while it is read, and so does the end.
TEST(MonitorServer, AnswersAndEndsWhileALargeFileIsRead) {
  const TempFolder folder;
  {
    std::ofstream out(folder.path() / "large.jsonl");
    const std::string rest =
        R"(,"grad_norm":1.25,"learning_rate":0.001,"tokens_per_second":1000,"seconds":0.5,)"
        R"("memory_reserved":123456789,"memory_allocated":123456789,"tflops_per_gpu":12.5})"
        "\n";
    for (int i = 1; i <= 1'000'000; ++i) {
      out << R"({"kind":"train","iteration":)" << i << R"(,"lm_loss":2.5)" << rest;
    }
  }
  auto server = std::make_unique<MonitorServer>(folder.path(), ServerOptions{});
  std::thread thread([&server] { server->run(); });
  double slowest = 0;
  std::int64_t records = 0;
  bool while_reading = false;
  for (int i = 0; i < 20'000 && records < 500'000; ++i) {
    const Timer timer;
    const json runs = json::parse(get(server->port(), "/api/runs").body)["runs"];
    slowest = std::max(slowest, timer.seconds());
    if (!runs.empty()) records = runs[0]["num_records"];
    while_reading = while_reading || (records > 0 && records < 1'000'000);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(while_reading);
  EXPECT_LT(slowest, 1.0);
  // Half of it is enough to see; the rest is for the end.
  const Timer timer;
  server->stop();
  thread.join();
  EXPECT_LT(timer.seconds(), 1.0);
}

}  // namespace
}  // namespace pentatron::monitor
