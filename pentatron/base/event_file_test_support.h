// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/base/file.h"
#include "pentatron/base/sha256.h"

// Reads event files byte by byte, without the library that wrote them. Only tests include it.
namespace pentatron {

struct ReadEvent {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string file_version = {};
  std::string tag = {};
  float value = 0;
  std::string text = {};    // of a text summary
  std::string plugin = {};  // its plug-in
};

// Fields of one message: number to the raw values in order (varints and fixed ones as 8 bytes).
class WireMessage {
 public:
  explicit WireMessage(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::uint64_t key = varint(bytes);
      const auto number = static_cast<int>(key >> 3);
      switch (key & 7U) {
        case 0:
          numbers_[number].push_back(varint(bytes));
          break;
        case 1:
          numbers_[number].push_back(fixed(bytes, 8));
          break;
        case 2: {
          const std::uint64_t length = varint(bytes);
          texts_[number].emplace_back(take(bytes, length));
          break;
        }
        case 5:
          numbers_[number].push_back(fixed(bytes, 4));
          break;
        default:
          throw std::runtime_error("an unknown wire type");
      }
    }
  }
  [[nodiscard]] bool has(int number) const {
    return numbers_.contains(number) || texts_.contains(number);
  }
  [[nodiscard]] std::uint64_t number(int number) const {
    const auto found = numbers_.find(number);
    return found == numbers_.end() ? 0 : found->second.back();
  }
  [[nodiscard]] std::string text(int number) const {
    const auto found = texts_.find(number);
    return found == texts_.end() ? "" : found->second.back();
  }

  static std::uint64_t fixed(std::string_view& bytes, std::size_t length) {
    std::uint64_t value = 0;
    std::memcpy(&value, take(bytes, length).data(), length);
    return value;
  }
  static std::string_view take(std::string_view& bytes, std::size_t length) {
    if (bytes.size() < length) throw std::runtime_error("cut off");
    const std::string_view piece = bytes.substr(0, length);
    bytes.remove_prefix(length);
    return piece;
  }

 private:
  static std::uint64_t varint(std::string_view& bytes) {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(bytes, 1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
      if ((byte & 0x80U) == 0) return value;
    }
    throw std::runtime_error("a varint without end");
  }

  std::map<int, std::vector<std::uint64_t>> numbers_;
  std::map<int, std::vector<std::string>> texts_;
};

inline ReadEvent read_event(std::string_view payload) {
  const WireMessage event(payload);
  ReadEvent read{.wall_time = std::bit_cast<double>(event.number(1)),
                 .step = static_cast<std::int64_t>(event.number(2)),
                 .file_version = event.text(3)};
  if (!event.has(5)) return read;
  const WireMessage value(WireMessage(event.text(5)).text(1));
  read.tag = value.text(1);
  read.value = std::bit_cast<float>(static_cast<std::uint32_t>(value.number(2)));
  read.text = WireMessage(value.text(8)).text(8);
  read.plugin = WireMessage(WireMessage(value.text(9)).text(1)).text(1);
  return read;
}

// All events of a file. std::runtime_error for a checksum that is wrong or a record cut off.
inline std::vector<ReadEvent> read_event_file(const std::filesystem::path& path) {
  const auto unmasked = [](std::uint64_t masked) {
    const auto rotated = static_cast<std::uint32_t>(masked) - 0xA282EAD8U;
    return (rotated >> 17) | (rotated << 15);
  };
  const auto crc_of = [](std::string_view piece) {
    return crc32c(std::as_bytes(std::span(piece)));
  };
  const std::string text = read_text_file(path);
  std::string_view bytes = text;
  std::vector<ReadEvent> events;
  while (!bytes.empty()) {
    const std::string_view head = bytes.substr(0, 8);
    const std::uint64_t length = WireMessage::fixed(bytes, 8);
    if (unmasked(WireMessage::fixed(bytes, 4)) != crc_of(head)) {
      throw std::runtime_error("the checksum of a length is wrong");
    }
    const std::string_view payload = WireMessage::take(bytes, length);
    if (unmasked(WireMessage::fixed(bytes, 4)) != crc_of(payload)) {
      throw std::runtime_error("the checksum of a record is wrong");
    }
    events.push_back(read_event(payload));
  }
  return events;
}

}  // namespace pentatron
