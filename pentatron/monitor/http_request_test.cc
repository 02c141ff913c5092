// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/http_request.h"

#include <gtest/gtest.h>

namespace pentatron::monitor {
namespace {

std::string with_line(const std::string& line) {
  return "GET / HTTP/1.1\r\nHost: localhost:80\r\n" + line + "\r\n\r\n";
}

TEST(HttpRequest, ReadsWhatABrowserSends) {
  const std::string text =
      "GET /api/run?run=3&name=a%20b+c&empty=&bare&x=1.5 HTTP/1.1\r\nHost: [::1]:80\r\n"
      "Accept: */*\r\n\r\n";
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_EQ(parse_request(text.substr(0, i)).status, 0) << i;
  }
  const ParsedRequest parsed = parse_request(text + "GET /next");
  ASSERT_EQ(parsed.status, 200);
  EXPECT_EQ(parsed.size, text.size());
  const HttpRequest& request = parsed.request;
  EXPECT_EQ(request.path, "/api/run");
  EXPECT_EQ(request.host, "::1");
  EXPECT_TRUE(request.keep_alive);
  EXPECT_FALSE(request.head_only);
  EXPECT_EQ(request.integer("run"), 3);
  EXPECT_EQ(request.number("x"), 1.5);
  EXPECT_EQ(request.text("name"), "a b c");
  for (const char* none : {"empty", "bare", "name", "missing", "x"}) {
    EXPECT_FALSE(request.integer(none)) << none;
  }
}

TEST(HttpRequest, KeepsAConnectionOnlyWhereTheClientWantsIt) {
  EXPECT_FALSE(parse_request(with_line("Connection: Close")).request.keep_alive);
  EXPECT_TRUE(parse_request(with_line("Connection: keep-alive")).request.keep_alive);
  EXPECT_FALSE(parse_request("HEAD / HTTP/1.0\r\nHost: a\r\n\r\n").request.keep_alive);
  EXPECT_TRUE(parse_request("HEAD / HTTP/1.0\r\nHost: a\r\n\r\n").request.head_only);
}

TEST(HttpRequest, RefusesWhatTwoReadersWouldReadDifferently) {
  for (const char* line :
       {"A : b", " folded: x", "A\tb: c", "no colon", "Content-Length: -1", "Content-Length: +0",
        "Content-Length: 0x10", "Content-Length: 0\r\nContent-Length: 0",
        "Content-Length: 3\r\nTransfer-Encoding: chunked", "Host: second", "A: b\rc",
        "A: b\nBare: c", ": no name"}) {
    EXPECT_EQ(parse_request(with_line(line)).status, 400) << line;
  }
  EXPECT_EQ(parse_request(with_line(std::string("A: b\0c", 6))).status, 400);
  for (const char* text :
       {"GET / HTTP/1.1\r\n\r\n", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "\r\n\r\n", "\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        "G@T / HTTP/1.1\r\nHost: a\r\n\r\n", "GET /\x80 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\r\nHost: a\r\n\r\n", "GET / http/1.1\r\nHost: a\r\n\r\n"}) {
    EXPECT_EQ(parse_request(text).status, 400) << text;
  }
}

TEST(HttpRequest, RefusesBodiesMethodsAndVersions) {
  EXPECT_EQ(parse_request(with_line("Content-Length: 1")).status, 413);
  EXPECT_EQ(parse_request(with_line("Content-Length: 99999999999999999999999")).status, 413);
  EXPECT_EQ(parse_request(with_line("Content-Length: 0")).status, 200);
  EXPECT_EQ(parse_request(with_line("Transfer-Encoding: chunked")).status, 411);
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "get"}) {
    EXPECT_EQ(parse_request(std::string(method) + " / HTTP/1.1\r\nHost: a\r\n\r\n").status, 405);
  }
  EXPECT_EQ(parse_request("GET / HTTP/2.0\r\nHost: a\r\n\r\n").status, 505);
}

TEST(HttpRequest, RefusesHeadsBeyondTheLimits) {
  EXPECT_EQ(parse_request(std::string(kLongestHead - 1, 'a')).status, 0);
  EXPECT_EQ(parse_request(std::string(kLongestHead, 'a')).status, 431);
  EXPECT_EQ(parse_request(with_line("A: " + std::string(kLongestHead, 'b'))).status, 431);
  std::string many = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (std::size_t i = 1; i < kMostHeaders; ++i) many += "A: b\r\n";
  EXPECT_EQ(parse_request(many + "\r\n").status, 200);
  EXPECT_EQ(parse_request(many + "A: b\r\n\r\n").status, 431);
}

}  // namespace
}  // namespace pentatron::monitor
