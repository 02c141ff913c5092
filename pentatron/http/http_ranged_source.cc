// SPDX-License-Identifier: Apache-2.0
#include "pentatron/http/http_ranged_source.h"

#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/printable.h"

namespace pentatron::http {
namespace {

constexpr int kPartialContent = 206;
constexpr int kWholeContent = 200;
constexpr int kNoSuchRange = 416;

// Header fields come from outside; what of them stands in messages is short.
std::string shown(std::string_view text) {
  constexpr std::size_t kMaxBytes = 100;
  return printable(text, kMaxBytes);
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && !text.empty() ? std::optional(value) : std::nullopt;
}

struct ContentRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::uint64_t size = 0;
};

// "bytes FIRST-LAST/SIZE", or "bytes */SIZE" for a range that is not there.
std::optional<ContentRange> parse_content_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return std::nullopt;
  text.remove_prefix(kUnit.size());
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto size = number(text.substr(slash + 1));
  if (!size) return std::nullopt;
  if (text.substr(0, slash) == "*") return ContentRange{.size = *size};
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos || dash > slash) return std::nullopt;
  const auto first = number(text.substr(0, dash));
  const auto last = number(text.substr(dash + 1, slash - dash - 1));
  if (!first || !last || *last < *first || *last >= *size) return std::nullopt;
  return ContentRange{.first = *first, .last = *last, .size = *size};
}

bool worth_another_try(int status) { return status == 408 || status == 429 || status >= 500; }

std::string what_failed(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection:
    case httplib::Error::ConnectionTimeout:
      return "no connection";
    case httplib::Error::Read:
      return "the answer ended early or stayed away";
    case httplib::Error::SSLServerVerification:
      return "the server's certificate is not trusted";
    default:
      return httplib::to_string(error);
  }
}

}  // namespace

// What a server said to one request; `problem`: why nothing can be made of it.
struct HttpRangedSource::Answer {
  int status = 0;  // 0: none came
  std::optional<ContentRange> range;
  std::string version;
  std::string location;
  std::string problem;
  bool again = false;  // the same request may be answered later
};

class HttpRangedSource::Connections {
 public:
  Connections(std::string server, const HttpSourceOptions& options)
      : server_(std::move(server)), options_(options) {}

  std::unique_ptr<httplib::Client> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto client = std::move(free_.back());
        free_.pop_back();
        return client;
      }
    }
    auto client = std::make_unique<httplib::Client>(server_);
    PENTATRON_CHECK(client->is_valid(), kConfig, "{}: no address of a server", server_);
    client->set_keep_alive(true);
    client->set_tcp_nodelay(true);
    client->set_follow_location(false);
    client->set_decompress(false);
    client->set_connection_timeout(std::chrono::milliseconds(options_.connect_timeout_ms));
    client->set_read_timeout(std::chrono::milliseconds(options_.read_timeout_ms));
    client->set_write_timeout(std::chrono::milliseconds(options_.read_timeout_ms));
    return client;
  }
  void give(std::unique_ptr<httplib::Client> client) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(client));
  }

 private:
  std::string server_;
  HttpSourceOptions options_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<httplib::Client>> free_;
};

HttpRangedSource::HttpRangedSource(std::string url, const HttpSourceOptions& options)
    : url_(std::move(url)),
      place_(parse_http_url(url_)),
      options_(options),
      connections_(std::make_unique<Connections>(place_.server, options)) {
  std::byte first{};
  const Answer answer = ask_until_answered(0, std::span(&first, 1));
  // An empty object has no first byte; the answer to that names its size.
  const bool empty = answer.status == kNoSuchRange && answer.range && answer.range->size == 0;
  if (!empty) {
    if (!answer.problem.empty()) refuse(answer);
    size_ = answer.range->size;
    version_ = answer.version;
  }
}

HttpRangedSource::~HttpRangedSource() = default;

void HttpRangedSource::refuse(const Answer& answer) const {
  PENTATRON_CHECK(answer.status != kWholeContent, kUnsupported,
                  "{}: the server sends the whole object where a part was asked for: corpora can "
                  "only be read from a server of range requests (RFC 9110); or copy it to a disk",
                  url_);
  PENTATRON_CHECK(answer.location.empty(), kIo,
                  "{}: moved to {} (status {}): give that address instead", url_, answer.location,
                  answer.status);
  PENTATRON_THROW(kIo, "{}: {}", url_, answer.problem);
}

HttpRangedSource::Answer HttpRangedSource::ask(std::uint64_t offset,
                                               std::span<std::byte> out) const {
  const std::uint64_t last = offset + out.size() - 1;
  Answer answer;
  std::size_t received = 0;
  bool more = false;
  const auto on_head = [&](const httplib::Response& response) {
    answer.status = response.status;
    answer.range = parse_content_range(response.get_header_value("Content-Range"));
    answer.version = response.get_header_value("ETag");
    if (answer.version.empty()) answer.version = response.get_header_value("Last-Modified");
    answer.location = shown(response.get_header_value("Location"));
    return response.status == kPartialContent;  // no other body is read
  };
  const auto on_body = [&](const char* data, std::size_t count) {
    more = count > out.size() - received;
    if (more) return false;
    std::copy_n(reinterpret_cast<const std::byte*>(data), count, out.begin() + received);
    received += count;
    return true;
  };
  auto client = connections_->take();
  const httplib::Result result = client->Get(
      place_.path.c_str(),
      {{"Range", fmt::format("bytes={}-{}", offset, last)}, {"Accept-Encoding", "identity"}},
      on_head, on_body);
  connections_->give(std::move(client));
  if (answer.status == 0) {
    answer.problem = what_failed(result.error());
    answer.again = result.error() != httplib::Error::SSLServerVerification;
  } else if (answer.status != kPartialContent) {
    answer.problem = fmt::format("the server answers with status {}", answer.status);
    answer.again = worth_another_try(answer.status);
  } else if (!answer.range || answer.range->first != offset || answer.range->last != last) {
    answer.problem = fmt::format("bytes {} to {} were asked for, and the answer's range is another",
                                 offset, last);
  } else if (more) {
    answer.problem = fmt::format("the answer is longer than the {} bytes asked for", out.size());
  } else if (!result || received != out.size()) {
    answer.problem = fmt::format("the answer ended after {} of {} bytes", received, out.size());
    answer.again = true;
  }
  return answer;
}

HttpRangedSource::Answer HttpRangedSource::ask_until_answered(std::uint64_t offset,
                                                              std::span<std::byte> out) const {
  int delay_ms = options_.first_delay_ms;
  for (int number = 1;; ++number) {
    Answer answer = ask(offset, out);
    if (answer.problem.empty() || !answer.again) return answer;
    PENTATRON_CHECK(number < options_.tries, kIo,
                    "{}: bytes {} to {} could not be read in {} tries; the last one: {}", url_,
                    offset, offset + out.size() - 1, options_.tries, answer.problem);
    log::warn("{}: {}; once more in {} ms", url_, answer.problem, delay_ms);
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    delay_ms *= 2;
  }
}

void HttpRangedSource::read(std::uint64_t offset, std::span<std::byte> out) const {
  PENTATRON_CHECK(offset <= size_ && out.size() <= size_ - offset, kInternal,
                  "{}: bytes {} to {} of {}", url_, offset, offset + out.size(), size_);
  if (out.empty()) return;
  const Answer answer = ask_until_answered(offset, out);
  PENTATRON_CHECK(answer.status != kNoSuchRange, kData,
                  "{} has changed while in use: it has become shorter than the {} bytes of the "
                  "beginning",
                  url_, size_);
  if (answer.range) {
    PENTATRON_CHECK(answer.range->size == size_, kData,
                    "{} has changed while in use: {} bytes, at first it had {}", url_,
                    answer.range->size, size_);
  }
  if (!answer.problem.empty()) refuse(answer);
  PENTATRON_CHECK(answer.version == version_, kData,
                  "{} has changed while in use: its version is {}, at first it was {}", url_,
                  shown(answer.version), shown(version_));
}

}  // namespace pentatron::http
