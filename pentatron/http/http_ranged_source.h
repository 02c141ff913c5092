// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "pentatron/base/ranged_source.h"
#include "pentatron/http/http_url.h"

namespace pentatron::http {

struct HttpSourceOptions {
  int tries = 6;             // of a request, before it is an error
  int first_delay_ms = 200;  // before the second try; doubled before each further one
  int connect_timeout_ms = 10'000;
  int read_timeout_ms = 30'000;  // of silence
};

// An object on an HTTP/1.1 server, read by range requests (RFC 9110, 14). The size and the entity
// tag (or the time of the last change) that the server names first are compared with those of every
// answer. A request that cannot connect, is answered by 408, 429 or 5xx, or whose answer ends early
// or stays away is made again; every other answer is an error at once. Threads have connections of
// their own, which are kept. Certificates of https are verified against the system's.
class HttpRangedSource final : public RangedSource {
 public:
  // Asks for the first byte. Errors: those of parse_http_url; kUnsupported for a server that does
  // not serve ranges; kIo for any other refusal.
  explicit HttpRangedSource(std::string url, const HttpSourceOptions& options = {});
  ~HttpRangedSource() override;

  [[nodiscard]] const std::string& name() const override { return url_; }
  [[nodiscard]] std::uint64_t size() const override { return size_; }
  void read(std::uint64_t offset, std::span<std::byte> out) const override;

 private:
  class Connections;
  struct Answer;
  [[nodiscard]] Answer ask(std::uint64_t offset, std::span<std::byte> out) const;
  [[nodiscard]] Answer ask_until_answered(std::uint64_t offset, std::span<std::byte> out) const;
  void refuse(const Answer& answer) const;

  std::string url_;
  HttpUrl place_;
  HttpSourceOptions options_;
  std::unique_ptr<Connections> connections_;
  std::uint64_t size_ = 0;
  std::string version_;
};

}  // namespace pentatron::http
