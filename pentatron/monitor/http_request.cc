// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/http_request.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace pentatron::monitor {
namespace {

constexpr int kOk = 200;
constexpr int kBadRequest = 400;
constexpr int kMethodNotAllowed = 405;
constexpr int kBodyWithoutLength = 411;
constexpr int kBodyTooLarge = 413;
constexpr int kHeadTooLarge = 431;
constexpr int kVersionNotSupported = 505;

// Characters of methods and of headers' names.
bool is_token(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

bool is_visible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return result;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// "[::1]:80" and "localhost:80" without the port.
std::string host_name(std::string_view value) {
  if (value.starts_with("[")) return std::string(value.substr(1, value.find(']') - 1));
  return std::string(value.substr(0, value.find(':')));
}

// Values of "%41" and '+'; what is no such pair stays.
std::string decoded(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned int byte = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ptr ==
            text.data() + i + 3) {
      result += static_cast<char>(byte);
      i += 2;
    } else {
      result += text[i] == '+' ? ' ' : text[i];
    }
  }
  return result;
}

void read_query(std::string_view text, HttpRequest& request) {
  while (!text.empty()) {
    const std::size_t end = text.find('&');
    const std::string_view pair = text.substr(0, end);
    const std::size_t equals = pair.find('=');
    if (!pair.empty()) {
      request.query.emplace(
          decoded(pair.substr(0, equals)),
          equals == std::string_view::npos ? "" : decoded(pair.substr(equals + 1)));
    }
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

// 0: good.
int read_request_line(std::string_view line, HttpRequest& request) {
  const std::size_t first = line.find(' ');
  const std::size_t second = line.find(' ', first == std::string_view::npos ? first : first + 1);
  if (second == std::string_view::npos) return kBadRequest;
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, second - first - 1);
  const std::string_view version = line.substr(second + 1);
  if (!is_token(method) || !is_visible(target) || !target.starts_with("/")) return kBadRequest;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    const bool another = version.size() == 8 && version.starts_with("HTTP/");
    return another ? kVersionNotSupported : kBadRequest;
  }
  if (method != "GET" && method != "HEAD") return kMethodNotAllowed;
  request.head_only = method == "HEAD";
  request.keep_alive = version == "HTTP/1.1";
  const std::size_t question = target.find('?');
  request.path = std::string(target.substr(0, question));
  if (question != std::string_view::npos) read_query(target.substr(question + 1), request);
  return 0;
}

// What headers say of the connection and the body.
struct Headers {
  int num_hosts = 0;
  int num_lengths = 0;
  bool transfer = false;
  bool body = false;
};

int read_header(std::string_view line, HttpRequest& request, Headers& headers) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return kBadRequest;
  const std::string name = lower(line.substr(0, colon));
  const std::string_view value = trimmed(line.substr(colon + 1));
  const bool printable = std::all_of(value.begin(), value.end(), [](char c) {
    return static_cast<unsigned char>(c) >= ' ' ? c != 0x7f : c == '\t';
  });
  if (!printable) return kBadRequest;
  if (name == "host") {
    ++headers.num_hosts;
    request.host = host_name(value);
  } else if (name == "content-length") {
    ++headers.num_lengths;
    const bool digits =
        !value.empty() && value.find_first_not_of("0123456789") == std::string_view::npos;
    if (!digits) return kBadRequest;
    headers.body = value.find_first_not_of('0') != std::string_view::npos;
  } else if (name == "transfer-encoding") {
    headers.transfer = true;
  } else if (name == "connection") {
    const std::string words = lower(value);
    if (words.find("close") != std::string::npos) request.keep_alive = false;
  }
  return 0;
}

}  // namespace

std::optional<std::int64_t> HttpRequest::integer(std::string_view name) const {
  const std::string value = text(name);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (value.empty() || error != std::errc() || end != value.data() + value.size()) {
    return std::nullopt;
  }
  return number;
}

std::optional<double> HttpRequest::number(std::string_view name) const {
  const std::string value = text(name);
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (value.empty() || error != std::errc() || end != value.data() + value.size() ||
      !std::isfinite(number)) {
    return std::nullopt;
  }
  return number;
}

std::string HttpRequest::text(std::string_view name) const {
  const auto found = query.find(name);
  return found == query.end() ? "" : found->second;
}

ParsedRequest parse_request(std::string_view bytes) {
  const std::string_view head = bytes.substr(0, kLongestHead);
  const std::size_t end = head.find("\r\n\r\n");
  const std::size_t bare = head.substr(0, end).find('\n');
  if (bare != std::string_view::npos && (bare == 0 || head[bare - 1] != '\r')) {
    return {.status = kBadRequest};
  }
  if (end == std::string_view::npos) {
    return {.status = bytes.size() >= kLongestHead ? kHeadTooLarge : 0};
  }
  ParsedRequest parsed{.status = kOk, .size = end + 4};
  std::string_view rest = head.substr(0, end + 2);
  Headers headers;
  std::size_t num_lines = 0;
  while (!rest.empty()) {
    const std::size_t line_end = rest.find("\r\n");
    const std::string_view line = rest.substr(0, line_end);
    rest.remove_prefix(line_end + 2);
    if (num_lines++ > kMostHeaders) return {.status = kHeadTooLarge};
    const bool bad_character = line.find_first_of(std::string_view("\r\n\0", 3)) != line.npos;
    const int problem = bad_character    ? kBadRequest
                        : num_lines == 1 ? read_request_line(line, parsed.request)
                                         : read_header(line, parsed.request, headers);
    if (problem != 0) return {.status = problem};
  }
  if (headers.num_hosts != 1 || headers.num_lengths > 1) return {.status = kBadRequest};
  if (headers.transfer) {
    return {.status = headers.num_lengths > 0 ? kBadRequest : kBodyWithoutLength};
  }
  if (headers.body) return {.status = kBodyTooLarge};
  return parsed;
}

}  // namespace pentatron::monitor
