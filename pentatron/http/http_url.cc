// SPDX-License-Identifier: Apache-2.0
#include "pentatron/http/http_url.h"

#include <algorithm>

#include "pentatron/base/error.h"

namespace pentatron::http {

HttpUrl parse_http_url(std::string_view url) {
  constexpr std::size_t kMaxLength = 8'000;
  PENTATRON_CHECK(url.size() <= kMaxLength, kConfig, "an address of {} characters, at most {}",
                  url.size(), kMaxLength);
  PENTATRON_CHECK(url.starts_with("http://") || url.starts_with("https://"), kConfig,
                  "{}: expected http://HOST[:PORT]/PATH or https://", url);
  PENTATRON_CHECK(
      std::ranges::all_of(url, [](char c) { return c > ' ' && c < 0x7F; }), kConfig,
      "{}: white space or a character outside ASCII in an address: write it as %20 and the like",
      url);
  PENTATRON_CHECK(url.find_first_of("?#") == std::string_view::npos, kConfig,
                  "{}: an address with a query or a fragment cannot be the prefix of a corpus",
                  url);
  const std::size_t host = url.find("://") + 3;
  const std::size_t path = std::min(url.find('/', host), url.size());
  PENTATRON_CHECK(path > host, kConfig, "{}: the address names no host", url);
  PENTATRON_CHECK(url.substr(host, path - host).find('@') == std::string_view::npos, kConfig,
                  "{}...: a user or password in an address is not sent",
                  url.substr(0, host));  // not printed
  PENTATRON_CHECK(path + 1 < url.size(), kConfig, "{}: the address names no object", url);
  return {.server = std::string(url.substr(0, path)), .path = std::string(url.substr(path))};
}

}  // namespace pentatron::http
