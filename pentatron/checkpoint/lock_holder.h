// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pentatron::checkpoint {

// Who holds a lock, as its file says.
struct LockHolder {
  std::string host;
  std::int64_t pid = 0;
  std::string boot_id;  // of the kernel that `pid` runs on
  std::string started;  // UTC, for people
  std::string token;    // another one for each lock ever taken
  std::uint64_t beats = 0;
};
// One line of JSON, of equal length whatever `beats` is.
[[nodiscard]] std::string lock_text(const LockHolder& holder);
// Nothing for all other texts.
[[nodiscard]] std::optional<LockHolder> parse_lock(std::string_view text);

// The calling process, from now on.
[[nodiscard]] LockHolder this_process();
// "process 12 on node-1, started 2026-01-02 03:04:05 UTC"
[[nodiscard]] std::string describe(const LockHolder& holder);

}  // namespace pentatron::checkpoint
