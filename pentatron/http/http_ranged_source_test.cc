// SPDX-License-Identifier: Apache-2.0
#include "pentatron/http/http_ranged_source.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <numeric>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/datasets/block_cache.h"
#include "pentatron/datasets/data_loader.h"
#include "pentatron/datasets/global_batch_plan.h"
#include "pentatron/datasets/gpt_dataset.h"
#include "pentatron/datasets/indexed_dataset.h"
#include "pentatron/datasets/indexed_dataset_writer.h"
#include "pentatron/http/range_server_test_support.h"

namespace pentatron::http {
namespace {

using testing::RangeServer;

constexpr HttpSourceOptions kQuick{
    .tries = 3, .first_delay_ms = 1, .connect_timeout_ms = 2000, .read_timeout_ms = 300};

std::string bytes_of(std::size_t count) {
  std::string text(count, '\0');
  for (std::size_t i = 0; i < count; ++i) text[i] = static_cast<char>((i * 131 + i / 251) % 256);
  return text;
}

std::string read(const RangedSource& source, std::uint64_t offset, std::size_t count) {
  std::string text(count, '\0');
  source.read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

template <typename Call>
std::string error_of(Call&& call, ErrorKind kind) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

void expect_part(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(HttpRangedSource, ReadsAnyRangeFromSeveralThreads) {
  RangeServer server;
  const std::string content = bytes_of(100'000);
  server.put("/a/b%20c", content, "");
  server.put("/a/b c", content, "\"one\"");  // the server's name of the same path
  const HttpRangedSource source(server.url("/a/b%20c"), kQuick);
  EXPECT_EQ(source.size(), content.size());
  EXPECT_EQ(read(source, 0, content.size()), content);
  EXPECT_EQ(read(source, 99'999, 1), content.substr(99'999));
  EXPECT_EQ(read(source, 100'000, 0), "");
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 50; ++i) {
        const std::size_t at = (t * 7919 + i * 1237) % 90'000;
        if (read(source, at, 100 + i) != content.substr(at, 100 + i)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_THROW((void)read(source, 99'999, 2), Error);
}

TEST(HttpRangedSource, AnEmptyObjectIsEmpty) {
  RangeServer server;
  server.disturb([](const httplib::Request&, httplib::Response& response, int) {
    response.status = 416;
    response.set_header("Content-Range", "bytes */0");
    return true;
  });
  EXPECT_EQ(HttpRangedSource(server.url("/empty"), kQuick).size(), 0U);
}

TEST(HttpRangedSource, TriesAgainWhatMayPass) {
  RangeServer server;
  const std::string content = bytes_of(5000);
  server.put("/x", content, "\"v\"");
  const HttpRangedSource source(server.url("/x"), kQuick);
  // 500, then an answer that ends in the middle, then a whole one.
  server.disturb([&](const httplib::Request&, httplib::Response& response, int number) {
    if (number == 0) response.status = 500;
    if (number == 1) {
      response.set_header("ETag", "\"v\"");
      response.set_content_provider(content.size(), "application/octet-stream",
                                    [&](std::size_t offset, std::size_t, httplib::DataSink& sink) {
                                      sink.write(content.data() + offset, 100);
                                      return false;
                                    });
    }
    return number < 2;
  });
  EXPECT_EQ(read(source, 1000, 3000), content.substr(1000, 3000));
  EXPECT_EQ(server.requests(), 3);
}

TEST(HttpRangedSource, GivesUpAfterSomeTries) {
  RangeServer server;
  const std::string content = bytes_of(5000);
  server.put("/x", content, "\"v\"");
  const HttpRangedSource source(server.url("/x"), kQuick);
  server.disturb([](const httplib::Request&, httplib::Response& response, int) {
    response.status = 503;
    return true;
  });
  const std::string error = error_of([&] { (void)read(source, 10, 5); }, ErrorKind::kIo);
  expect_part(error, "bytes 10 to 14 could not be read in 3 tries");
  expect_part(error, "503");
  expect_part(error, server.url("/x"));
  EXPECT_EQ(server.requests(), 3);
  // A refusal is an error at once.
  server.disturb([](const httplib::Request&, httplib::Response& response, int) {
    response.status = 403;
    return true;
  });
  expect_error(ErrorKind::kIo, "403", [&] { (void)read(source, 10, 5); });
  EXPECT_EQ(server.requests(), 1);
}

TEST(HttpRangedSource, ASlowServerIsNotWaitedForLong) {
  RangeServer server;
  server.put("/x", bytes_of(5000), "\"v\"");
  const HttpRangedSource source(server.url("/x"), kQuick);
  server.disturb([](const httplib::Request&, httplib::Response& response, int number) {
    if (number == 0) std::this_thread::sleep_for(std::chrono::milliseconds(700));
    return false;
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(read(source, 0, 10).size(), 10U);
  EXPECT_EQ(server.requests(), 2);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(HttpRangedSource, AChangedObjectIsRefusedByName) {
  RangeServer server;
  server.put("/x", bytes_of(5000), "\"one\"");
  const HttpRangedSource source(server.url("/x"), kQuick);
  server.put("/x", bytes_of(5000), "\"two\"");
  std::string error = error_of([&] { (void)read(source, 0, 10); }, ErrorKind::kData);
  expect_part(error, server.url("/x") + " has changed while in use");
  expect_part(error, "\"two\"");
  server.put("/x", bytes_of(4000), "\"one\"");
  error = error_of([&] { (void)read(source, 0, 10); }, ErrorKind::kData);
  expect_part(error, "4000 bytes, at first it had 5000");
  server.put("/x", bytes_of(100), "\"one\"");
  (void)error_of([&] { (void)read(source, 1000, 10); }, ErrorKind::kData);
}

TEST(HttpRangedSource, AServerWithoutRangesIsRefusedByName) {
  RangeServer server;
  server.disturb([](const httplib::Request&, httplib::Response& response, int) {
    response.status = 200;
    response.set_chunked_content_provider("text/plain", [](std::size_t, httplib::DataSink& sink) {
      sink.write("all of it", 9);
      sink.done();
      return true;
    });
    return true;
  });
  expect_error(ErrorKind::kUnsupported, "range requests",
               [&] { HttpRangedSource(server.url("/x"), kQuick); });
  server.disturb([](const httplib::Request&, httplib::Response& response, int) {
    response.status = 302;
    response.set_header("Location", "http://elsewhere.example/x");
    return true;
  });
  expect_error(ErrorKind::kIo, "http://elsewhere.example/x",
               [&] { HttpRangedSource(server.url("/x"), kQuick); });
}

// Sends given bytes to whoever connects, and closes.
class RawServer final {
 public:
  explicit RawServer(std::deque<std::string> answers) : answers_(std::move(answers)) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(fd_, 8), 0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~RawServer() {
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;
  [[nodiscard]] std::string url() const {
    return "http://127.0.0.1:" + std::to_string(port_) + "/x";
  }

 private:
  void run() {
    while (true) {
      const int client = ::accept(fd_, nullptr, nullptr);
      if (client < 0) return;
      std::string request;
      char byte = 0;
      while (!request.ends_with("\r\n\r\n") && ::recv(client, &byte, 1, 0) == 1) request += byte;
      const std::string answer = answers_.empty() ? std::string() : answers_.front();
      if (answers_.size() > 1) answers_.pop_front();
      (void)::send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
      ::shutdown(client, SHUT_WR);
      while (::recv(client, &byte, 1, 0) == 1) {
      }
      ::close(client);
    }
  }
  std::deque<std::string> answers_;
  int fd_ = -1;
  int port_ = 0;
  std::thread thread_;
};

std::string partial(const std::string& range, const std::string& body,
                    const std::string& further = "ETag: \"v\"\r\n") {
  return "HTTP/1.1 206 Partial Content\r\nContent-Range: " + range +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + further + "\r\n" + body;
}

TEST(HttpRangedSource, HostileAnswersAreErrors) {
  for (const std::string& range :
       {std::string("bytes 0-0/*"), std::string("bytes 0-0"), std::string("bytes 5-5/10"),
        std::string("bytes 0-0/0"), std::string("bytes 0-0/99999999999999999999999"),
        std::string("bytes -1-0/10"), std::string("cats 0-0/10"), std::string(5000, '9'),
        std::string("bytes 1-0/10")}) {
    const RawServer server({partial(range, "a")});
    const std::string error =
        error_of([&] { HttpRangedSource(server.url(), kQuick); }, ErrorKind::kIo);
    EXPECT_LT(error.size(), 500U) << range.substr(0, 40);
  }
  for (const std::string& answer :
       {std::string(), std::string("SSH-2.0-x\r\n\r\n"), std::string("HTTP/1.1 206 OK\r\n"),
        std::string(100'000, 'x'), std::string("HTTP/1.1 abc\r\n\r\n"),
        std::string(
            "HTTP/1.1 206 P\r\nContent-Range: bytes 0-0/10\r\nContent-Length: 1\r\n\r\n")}) {
    const RawServer server({answer});
    expect_error(ErrorKind::kIo, "3 tries", [&] { HttpRangedSource(server.url(), kQuick); });
  }
  // More than was asked for is not taken.
  const RawServer longer({partial("bytes 0-0/10", std::string(1'000'000, 'z'))});
  expect_error(ErrorKind::kIo, "longer than the 1 bytes",
               [&] { HttpRangedSource(longer.url(), kQuick); });
  // The size alone allocates nothing.
  const RawServer huge({partial("bytes 0-0/9000000000000000000", "a")});
  EXPECT_EQ(HttpRangedSource(huge.url(), kQuick).size(), 9'000'000'000'000'000'000U);
}

TEST(HttpRangedSource, NobodyThere) {
  std::string url;
  {
    const RawServer server({""});
    url = server.url();
  }
  expect_error(ErrorKind::kIo, "no connection", [&] { HttpRangedSource(url, kQuick); });
}

TEST(HttpUrl, IsSplitOrRefused) {
  const HttpUrl url = parse_http_url("http://data.example:8080/a/b%20c");
  EXPECT_EQ(url.server, "http://data.example:8080");
  EXPECT_EQ(url.path, "/a/b%20c");
  EXPECT_EQ(parse_http_url("https://[::1]/x").server, "https://[::1]");
  for (const char* bad :
       {"ftp://a/b", "http://", "http:///b", "http://host", "http://host/", "http://a b/c",
        "http://host/a?x=1", "http://host/a#b", "http://host/\n", "http://host/\xC3\xA9", "a/b"}) {
    EXPECT_THROW((void)parse_http_url(bad), Error) << bad;
  }
  const std::string error =
      error_of([] { (void)parse_http_url("http://me:secret@host/a"); }, ErrorKind::kConfig);
  EXPECT_EQ(error.find("secret"), std::string::npos) << error;
}

TEST(BlockCache, IsBoundedAndFetchesEachBlockOnce) {
  RangeServer server;
  const std::string content = bytes_of(10'000);
  server.put("/x", content, "\"v\"");
  const datasets::BlockCache cache(std::make_shared<HttpRangedSource>(server.url("/x"), kQuick),
                                   100, 5);
  const auto get = [&](std::uint64_t at, std::size_t count) {
    std::string text(count, '\0');
    cache.read(at, std::as_writable_bytes(std::span(text)));
    return text;
  };
  server.disturb(nullptr);
  EXPECT_EQ(get(150, 100), content.substr(150, 100));
  EXPECT_EQ(server.requests(), 2);
  EXPECT_EQ(get(100, 200), content.substr(100, 200));
  EXPECT_EQ(server.requests(), 2);
  EXPECT_EQ(get(0, 10'000), content);
  EXPECT_EQ(cache.num_blocks(), 5U);
  EXPECT_THROW((void)get(9'999, 2), Error);
  // Many threads, one block: one request.
  server.disturb([](const httplib::Request&, httplib::Response&, int) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return false;
  });
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      if (get(10, 50) != content.substr(10, 50)) ++wrong;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(server.requests(), 1);
  // A failure is met by who asks, and the next one tries again.
  server.disturb([](const httplib::Request&, httplib::Response& response, int number) {
    if (number == 0) response.status = 404;
    return number == 0;
  });
  EXPECT_THROW((void)get(5'000, 10), Error);
  EXPECT_EQ(get(5'000, 10), content.substr(5'000, 10));
}

TEST(RemoteCorpus, EqualsTheFiles) {
  const TempFolder folder;
  const std::string prefix = (folder.path() / "corpus").string();
  {
    datasets::IndexedDatasetWriter writer(prefix, datasets::TokenDtype::kInt32);
    for (int d = 0; d < 300; ++d) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(d * 37 % 1999));
      std::iota(tokens.begin(), tokens.end(), d);
      writer.add_sequence(tokens);
      writer.end_document();
    }
    writer.finish();
  }
  RangeServer server;
  server.put("/c.idx", read_text_file(prefix + ".idx"), "\"i\"");
  server.put("/c.bin", read_text_file(prefix + ".bin"), "\"b\"");
  const datasets::IndexedDataset local(prefix);
  const datasets::IndexedDataset remote(server.url("/c"));
  EXPECT_EQ(remote.identity(), local.identity());
  EXPECT_EQ(remote.content(datasets::ContentHash::kSampled),
            local.content(datasets::ContentHash::kSampled));
  EXPECT_EQ(datasets::corpus_prefix(server.url("/c.bin")), server.url("/c"));
  for (std::int64_t i = 0; i < local.num_sequences(); i += 7) {
    std::vector<std::int64_t> a(static_cast<std::size_t>(local.sequence_length(i)));
    std::vector<std::int64_t> b(a.size());
    local.read(i, 0, a);
    remote.read(i, 0, b);
    EXPECT_EQ(a, b) << i;
  }
  // A damaged index and one that is none are named by their address.
  server.put("/d.idx", "no index at all, but longer than its head", "");
  expect_error(ErrorKind::kData, server.url("/d.idx"),
               [&] { datasets::IndexedDataset{server.url("/d")}; });
  server.put("/e.idx", read_text_file(prefix + ".idx"), "");
  server.put("/e.bin", "short", "");
  expect_error(ErrorKind::kData, server.url("/e.idx"),
               [&] { datasets::IndexedDataset{server.url("/e")}; });
  expect_error(ErrorKind::kIo, "404", [&] { datasets::IndexedDataset{server.url("/f")}; });
}

// Documents of different lengths, on disk and on a server.
struct ServedCorpus {
  TempFolder folder;
  std::string prefix = (folder.path() / "corpus").string();
  RangeServer server;

  ServedCorpus() {
    datasets::IndexedDatasetWriter writer(prefix, datasets::TokenDtype::kUint16);
    for (int d = 0; d < 200; ++d) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(5 + d * 37 % 300));
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        tokens[t] = static_cast<std::int32_t>((static_cast<std::size_t>(d) * 31 + t) % 1000);
      }
      writer.add_sequence(tokens);
      writer.end_document();
    }
    writer.finish();
    server.put("/c.idx", read_text_file(prefix + ".idx"), "\"i\"");
    server.put("/c.bin", read_text_file(prefix + ".bin"), "\"b\"");
  }

  [[nodiscard]] datasets::GptDatasetOptions options(const std::string& path) const {
    datasets::GptDatasetOptions options;
    options.data_path = path;
    options.split = "1";
    options.sequence_length = 64;
    options.vocab_size = 1000;
    options.eod = 999;
    options.data_cache_path = (folder.path() / "cache").string();
    return options;
  }
  [[nodiscard]] datasets::GptDataset dataset(const std::string& path) const {
    const datasets::GptDatasetOptions o = options(path);
    return datasets::GptDataset(datasets::open_gpt_corpus(o), o, datasets::DataSplit::kTrain, 100);
  }
};

// Training reads a corpus on a disturbed server as it reads the files, in several threads.
TEST(RemoteCorpus, FeedsTheLoader) {
  ServedCorpus corpus;
  corpus.server.disturb([](const httplib::Request&, httplib::Response& response, int number) {
    if (number == 2) response.status = 503;
    return number == 2;
  });
  const auto batches = [&](const std::string& path) {
    const datasets::GptDataset dataset = corpus.dataset(path);
    datasets::DataLoader loader(
        dataset, {.plan = std::make_shared<datasets::GlobalBatchPlan>(4, 2, 1), .num_workers = 3});
    std::vector<std::int64_t> tokens;
    while (const auto step = loader.next()) {
      for (const auto& batch : *step) {
        const auto ids = batch->ids("tokens");
        tokens.insert(tokens.end(), ids.begin(), ids.end());
      }
    }
    return tokens;
  };
  const std::vector<std::int64_t> local = batches(corpus.prefix);
  EXPECT_GE(local.size(), 6400U);
  EXPECT_EQ(batches(corpus.server.url("/c")), local);
}

// What a reading thread meets is thrown in the step that needs it, with address and sequence.
TEST(RemoteCorpus, FaultsReachTheStep) {
  ServedCorpus corpus;
  const datasets::GptDataset dataset = corpus.dataset(corpus.server.url("/c"));
  corpus.server.disturb([](const httplib::Request&, httplib::Response& response, int) {
    response.status = 404;
    return true;
  });
  datasets::DataLoader loader(dataset,
                              {.plan = std::make_shared<datasets::GlobalBatchPlan>(4, 2, 1)});
  try {
    (void)loader.next();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    const std::string_view text = error.what();
    EXPECT_NE(text.find(corpus.server.url("/c.bin")), std::string_view::npos) << text;
    EXPECT_NE(text.find("while sequence "), std::string_view::npos) << text;
  }
}

TEST(RemoteCorpus, NeedsAFolderForItsIndex) {
  ServedCorpus corpus;
  datasets::GptDatasetOptions options = corpus.options(corpus.server.url("/c"));
  options.data_cache_path.clear();
  expect_error(ErrorKind::kConfig, "--data-cache-path", [&] {
    (void)datasets::GptDataset(datasets::open_gpt_corpus(options), options,
                               datasets::DataSplit::kTrain, 10);
  });
}

}  // namespace
}  // namespace pentatron::http
