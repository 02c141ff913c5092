// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

// Test-only switch. PENTATRON_FAULT_STOP_AT="<kind>:<n>" in the environment ends the process with
// SIGKILL right after the n-th (from 1) write, sync, rename or unlink; "error:<kind>:<n>" makes
// that operation fail with ENOSPC instead. PENTATRON_FAULT_LOG=<file> appends one line an
// operation, so that a test can count them. PENTATRON_FAULT_NO_UNNAMED=1 makes AtomicFile do as on
// a file system without O_TMPFILE. Unset: no cost but one branch. A value that cannot be read:
// kConfig; a log that cannot be written: kIo.
namespace pentatron {

enum class FaultKind { kWrite, kSync, kRename, kUnlink };

// Called before the operation; true means "pretend that the device is full".
[[nodiscard]] bool fault_before(FaultKind kind, std::string_view path);
// Called after the operation succeeded.
void fault_after(FaultKind kind, std::string_view path);

// Files without a name are to be refused.
[[nodiscard]] bool fault_refuses_unnamed_files();

}  // namespace pentatron
