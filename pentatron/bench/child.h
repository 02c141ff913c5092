// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace pentatron::bench {

// Runs this program again with other words and waits for it: `while_running` is called ten times a
// second. What it prints goes to `log`. It dies with this process. Returns its exit code, 128 plus
// the signal that ended it; a process that cannot be started: kIo.
[[nodiscard]] int run_program(const std::vector<std::string>& words,
                              const std::filesystem::path& log,
                              const std::function<void()>& while_running);

}  // namespace pentatron::bench
