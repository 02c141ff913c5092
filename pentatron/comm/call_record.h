// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/comm/group.h"

namespace pentatron::comm {

// What a member of a group calls, as the others compare it with what they call, before data moves.
struct CallRecord {
  std::string text;                         // "all_reduce(fp32 x 8, sum)"; cut after 159 bytes
  std::uint64_t number = 0;                 // of the member's calls in the group, from 0
  std::vector<std::int64_t> sent = {};      // rows to each member, of an exchange; else empty
  std::vector<std::int64_t> received = {};  // rows from each member
};

// "fp32 x 8"
[[nodiscard]] std::string content_of(const Tensor& t);

// Bytes of a record in a group of `members`, equal for all calls.
[[nodiscard]] std::int64_t record_bytes(int members);
// Exactly so many bytes.
[[nodiscard]] std::string encode(const CallRecord& record, int members);
// Why this member's call does not fit the others', naming the first rank that differs and both
// calls; empty when it fits. `records`: the members' encoded ones, one after another.
[[nodiscard]] std::string disagreement(std::string_view records, const std::string& group,
                                       const std::vector<std::int64_t>& world_ranks, int own);

// A message between two members has a note of what it holds, sent ahead, and its own payload under
// a tag made of that text, so that neither side waits for the other and a wrong one meets nothing.
inline constexpr std::int64_t kNoteBytes = 160;
[[nodiscard]] std::string encode_note(std::string_view text);
// 1 to 2^30.
[[nodiscard]] int tag_of(std::string_view text);
// Empty, or why the note that came is not of the message that this rank receives.
[[nodiscard]] std::string disagreement_of_note(std::string_view note, std::string_view expected);

}  // namespace pentatron::comm
