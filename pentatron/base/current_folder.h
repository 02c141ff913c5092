// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pentatron {

// Ends the process with a message and the exit code of ErrorKind::kIo where the folder that it was
// started in is gone. Uses system calls alone, so that it may run before any constructor.
void require_current_folder();

}  // namespace pentatron
