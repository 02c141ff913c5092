// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

// What shells and `man` know of the program, from the option tables.
namespace pentatron::config {

struct CommandSummary {
  std::string_view name;
  std::string_view summary;
};

enum class Shell { kBash, kZsh, kFish };
// Another word than bash, zsh and fish: kConfig.
[[nodiscard]] Shell parse_shell(std::string_view name);

// A script that completes commands, the accepted options of pretrain_gpt with their values, and, by
// asking --help, the options of the other commands.
[[nodiscard]] std::string completion_script(Shell shell, std::span<const CommandSummary> commands);

// pentatron(1) in the man macros: commands, options by topic, exit codes.
[[nodiscard]] std::string man_page(std::string_view version,
                                   std::span<const CommandSummary> commands);

}  // namespace pentatron::config
