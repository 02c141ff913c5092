// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace pentatron::http {

struct HttpUrl {
  std::string server;  // scheme, host and port: "http://data.example:8080"
  std::string path;    // "/corpora/text.bin", as it was written
};

// Splits http://HOST[:PORT]/PATH or https://...; kConfig for anything else: another scheme, no
// host, a user or password, a query or fragment (the endings .bin and .idx are put after a prefix),
// white space and control characters, more than 8,000 characters.
[[nodiscard]] HttpUrl parse_http_url(std::string_view url);

}  // namespace pentatron::http
