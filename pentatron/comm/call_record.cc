// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/call_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "pentatron/base/printable.h"

namespace pentatron::comm {
namespace {

constexpr std::size_t kTextBytes = 160;  // with the zero behind it
constexpr std::size_t kNumberBytes = sizeof(std::int64_t);

std::string padded(std::string_view text) {
  std::string bytes(kTextBytes, '\0');
  std::memcpy(bytes.data(), text.data(), std::min(text.size(), kTextBytes - 1));
  return bytes;
}

std::string text_of(std::string_view bytes) {
  const std::string_view whole = bytes.substr(0, kTextBytes);
  return printable(whole.substr(0, whole.find('\0')), kTextBytes);
}

std::int64_t number_at(std::string_view bytes, std::size_t index) {
  std::int64_t value = 0;
  std::memcpy(&value, bytes.data() + kTextBytes + index * kNumberBytes, kNumberBytes);
  return value;
}

}  // namespace

std::string content_of(const Tensor& t) {
  return fmt::format("{} x {}", tensor::dtype_name(t.scalar_type()), t.numel());
}

// The text, the number of the call, whether it has rows, and these.
std::int64_t record_bytes(int members) {
  return static_cast<std::int64_t>(kTextBytes +
                                   (2 + 2 * static_cast<std::size_t>(members)) * kNumberBytes);
}

std::string encode(const CallRecord& record, int members) {
  std::string bytes = padded(record.text);
  bytes.resize(static_cast<std::size_t>(record_bytes(members)), '\0');
  const auto put = [&](std::size_t index, std::int64_t value) {
    std::memcpy(bytes.data() + kTextBytes + index * kNumberBytes, &value, kNumberBytes);
  };
  put(0, static_cast<std::int64_t>(record.number));
  put(1, record.sent.empty() ? 0 : 1);
  for (std::size_t m = 0; m < record.sent.size(); ++m) {
    put(2 + m, record.sent[m]);
    put(2 + static_cast<std::size_t>(members) + m, record.received[m]);
  }
  return bytes;
}

std::string disagreement(std::string_view records, const std::string& group,
                         const std::vector<std::int64_t>& world_ranks, int own) {
  const std::size_t members = world_ranks.size();
  const auto bytes = static_cast<std::size_t>(record_bytes(static_cast<int>(members)));
  const auto record = [&](std::size_t m) { return records.substr(m * bytes, bytes); };
  const auto me = static_cast<std::size_t>(own);
  const auto same = [&](std::size_t m) {
    return std::memcmp(record(m).data(), record(me).data(), kTextBytes + kNumberBytes) == 0;
  };
  for (std::size_t m = 0; m < members; ++m) {
    if (same(m)) continue;
    return fmt::format(
        "group '{}': the members disagree at call #{}: rank {} called {}, rank {} called {} (its "
        "#{})",
        group, number_at(record(me), 0), world_ranks[me], text_of(record(me)), world_ranks[m],
        text_of(record(m)), number_at(record(m), 0));
  }
  if (number_at(record(me), 1) == 0) return {};
  const auto rows = [&](std::size_t of, bool received, std::size_t peer) {
    return number_at(record(of), 2 + (received ? members : 0) + peer);
  };
  for (std::size_t m = 0; m < members; ++m) {
    for (const auto& [from, to] : {std::pair(me, m), std::pair(m, me)}) {
      if (rows(from, false, to) == rows(to, true, from)) continue;
      return fmt::format("group '{}', {} #{}: rank {} sends {} rows to rank {}, which expects {}",
                         group, text_of(record(me)), number_at(record(me), 0), world_ranks[from],
                         rows(from, false, to), world_ranks[to], rows(to, true, from));
    }
  }
  return {};
}

std::string encode_note(std::string_view text) { return padded(text); }

// FNV-1a.
int tag_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return static_cast<int>(hash % (std::uint64_t{1} << 30)) + 1;
}

std::string disagreement_of_note(std::string_view note, std::string_view expected) {
  if (std::memcmp(note.data(), padded(expected).data(), kTextBytes) == 0) return {};
  return fmt::format("this rank receives {}, the peer sends {}", expected, text_of(note));
}

}  // namespace pentatron::comm
