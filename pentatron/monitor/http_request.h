// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace pentatron::monitor {

// A request without a body, as far as a page that only reads needs it.
struct HttpRequest {
  bool head_only = false;  // HEAD
  std::string path;        // from '/', as sent: nothing is decoded, "%2e" names nothing
  std::map<std::string, std::string, std::less<>> query;
  std::string host;         // of the Host header, without its port
  bool keep_alive = false;  // the client may send another request

  // A parameter as an integer, as a finite number; nothing where it is missing or something else.
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view name) const;
  [[nodiscard]] std::optional<double> number(std::string_view name) const;
  // "" where it is missing.
  [[nodiscard]] std::string text(std::string_view name) const;
};

inline constexpr std::size_t kLongestHead = 8192;  // bytes: request line, headers, empty line
inline constexpr std::size_t kMostHeaders = 64;

struct ParsedRequest {
  // 0: the head is not complete yet; 200: `request` is one, of `size` bytes; else the status with
  // which it is refused, after which the connection is closed.
  int status = 0;
  std::size_t size = 0;
  HttpRequest request = {};
};

// Reads the head of a request (RFC 9112) from the start of `bytes`. Strict, because what a server
// and a proxy read differently is a way in: line ends are CR LF, no folded lines, no space before a
// colon, one Host, no body of any kind. 400: not such a request; 405: a method other than GET and
// HEAD; 411 or 413: a body; 431: more than kLongestHead bytes or kMostHeaders headers; 505: another
// version than HTTP/1.0 and 1.1.
[[nodiscard]] ParsedRequest parse_request(std::string_view bytes);

}  // namespace pentatron::monitor
