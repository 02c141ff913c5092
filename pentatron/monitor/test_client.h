// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

// A plain socket for tests of the server: what a careless or hostile client sends, byte for byte.
namespace pentatron::monitor {

class TestClient final {
 public:
  explicit TestClient(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~TestClient() {
    if (fd_ >= 0) ::close(fd_);
  }
  TestClient(TestClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  TestClient& operator=(TestClient&&) = delete;

  // False: the server has closed the connection.
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t done = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (done <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(done));
    }
    return true;
  }

  // What comes until the server closes, or for `timeout_ms` without a byte.
  [[nodiscard]] std::string read_to_end(int timeout_ms = 5000) const {
    std::string text;
    while (true) {
      pollfd ready{fd_, POLLIN, 0};
      if (::poll(&ready, 1, timeout_ms) <= 0) return text;
      std::array<char, 1 << 16> block{};
      const ssize_t got = ::recv(fd_, block.data(), block.size(), 0);
      if (got <= 0) return text;
      text.append(block.data(), static_cast<std::size_t>(got));
    }
  }

  // One answer with a Content-Length, head and body; what was read of it when nothing comes.
  [[nodiscard]] std::string read_answer(int timeout_ms = 5000) const {
    std::string text;
    while (true) {
      const std::size_t end = text.find("\r\n\r\n");
      const std::string name = "Content-Length: ";
      const std::size_t length = text.find(name);
      if (end != std::string::npos && length < end &&
          text.size() >= end + 4 + std::stoul(text.substr(length + name.size()))) {
        return text;
      }
      pollfd ready{fd_, POLLIN, 0};
      if (::poll(&ready, 1, timeout_ms) <= 0) return text;
      char byte = 0;
      if (::recv(fd_, &byte, 1, 0) <= 0) return text;
      text += byte;
    }
  }

  // Whether the server has closed the connection, within the time.
  [[nodiscard]] bool closed_within(int timeout_ms) const {
    pollfd ready{fd_, POLLIN, 0};
    char byte = 0;
    return ::poll(&ready, 1, timeout_ms) > 0 && ::recv(fd_, &byte, 1, 0) <= 0;
  }

 private:
  int fd_;
};

struct TestAnswer {
  int status = 0;
  std::string head;
  std::string body;
};

inline TestAnswer split_answer(const std::string& text) {
  TestAnswer answer;
  const std::size_t end = text.find("\r\n\r\n");
  if (!text.starts_with("HTTP/1.1 ") || end == std::string::npos) return answer;
  answer.status = std::stoi(text.substr(9, 3));
  answer.head = text.substr(0, end + 2);
  answer.body = text.substr(end + 4);
  return answer;
}

// One GET on a connection of its own.
inline TestAnswer get(int port, const std::string& target, const std::string& host = "localhost") {
  const TestClient client(port);
  (void)client.send("GET " + target + " HTTP/1.1\r\nHost: " + host +
                    "\r\nConnection: close\r\n\r\n");
  return split_answer(client.read_to_end());
}

}  // namespace pentatron::monitor
