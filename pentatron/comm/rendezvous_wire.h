// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

// What rendezvous_client and rendezvous_server say to each other. The server greets with kGreeting
// and a nonce; the client answers with the keyed digest of the nonce under the job's token; the
// server says kWelcome, or closes. Then requests and answers in turn, each a frame: a length of
// four bytes in the machine's order (all ranks of a job run on machines of one kind) and that many
// bytes.
namespace pentatron::comm::wire {

inline constexpr std::string_view kGreeting = "pentatron rendezvous 1\n";
inline constexpr std::size_t kNonceBytes = 32;   // hexadecimal digits
inline constexpr std::size_t kDigestBytes = 64;  // hexadecimal digits
inline constexpr char kWelcome = 'Y';
inline constexpr char kRefusal = 'N';
inline constexpr std::uint32_t kMaxFrameBytes = 64U << 20;

enum class Op : std::uint8_t {
  kSet = 1,
  kGet,
  kAdd,        // value: the amount, decimal
  kSetAbsent,  // answers the value that is there now
  kDelete,
  kCount,   // answers the number of keys
  kBeat,    // key: a rank, value: its phase and progress; answers the failure or rank 0's phase
  kLeave,   // key: a rank that ends in good order
  kAwait,   // value: milliseconds; as kGet, once the key is there or the time is over
  kSilent,  // answers which ranks have not been heard of
  kBehind   // key: a group, value: a number and ranks; which of them have made fewer calls in it
};

enum class Status : std::uint8_t { kOk = 1, kAbsent, kFailed };

inline std::string framed(std::string_view body) {
  const auto length = static_cast<std::uint32_t>(body.size());
  std::string frame(sizeof(length), '\0');
  std::memcpy(frame.data(), &length, sizeof(length));
  return frame.append(body);
}

// The first whole frame's body, taken from the buffer; nothing yet. `valid` becomes false for a
// length that no frame has.
inline std::optional<std::string> take_frame(std::string& buffer, bool& valid) {
  std::uint32_t length = 0;
  if (buffer.size() < sizeof(length)) return std::nullopt;
  std::memcpy(&length, buffer.data(), sizeof(length));
  valid = length <= kMaxFrameBytes;
  if (!valid || buffer.size() - sizeof(length) < length) return std::nullopt;
  std::string body = buffer.substr(sizeof(length), length);
  buffer.erase(0, sizeof(length) + length);
  return body;
}

// Behind the phase of a beat: calls that the rank has made in each group since its last beat, as
// " NUMBER GROUP" with these two in front of and between them.
inline constexpr char kProgressMark = '\x1e';

struct Request {
  Op op = Op::kGet;
  std::string key;
  std::string value;
};

inline std::string pack(const Request& request) {
  const auto length = static_cast<std::uint32_t>(request.key.size());
  std::string body(1 + sizeof(length), static_cast<char>(request.op));
  std::memcpy(body.data() + 1, &length, sizeof(length));
  return body + request.key + request.value;
}

inline std::optional<Request> unpack(std::string_view body) {
  std::uint32_t length = 0;
  constexpr std::size_t kHead = 1 + sizeof(length);
  if (body.size() < kHead) return std::nullopt;
  std::memcpy(&length, body.data() + 1, sizeof(length));
  if (body.size() - kHead < length) return std::nullopt;
  return Request{.op = static_cast<Op>(body[0]),
                 .key = std::string(body.substr(kHead, length)),
                 .value = std::string(body.substr(kHead + length))};
}

}  // namespace pentatron::comm::wire
