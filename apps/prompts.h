// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/command.h"

namespace pentatron::apps {

// The options that name prompts, of `generate`.
[[nodiscard]] std::vector<Flags::Spec> prompt_flags();

// Texts to be continued, one after the other: those of --prompt, of files and of their lines, or
// what standard input holds; a chat asks for a line at a time. Only rank 0 reads.
class Prompts final {
 public:
  // kConfig for words that exclude each other. Reads nothing yet.
  explicit Prompts(const Flags& flags);

  // --chat or --messages.
  [[nodiscard]] bool chats() const { return chat_ || messages_; }
  // A chat whose messages are typed, or come line by line: each knows those before it.
  [[nodiscard]] bool is_conversation() const { return chat_ && lines_ == "-"; }
  // JSON messages instead of a text (--messages).
  [[nodiscard]] bool are_messages() const { return messages_; }
  // For error messages: the file's name, or the option's.
  [[nodiscard]] const std::string& name() const { return name_; }

  // The next text; nothing at the end. kIo for a file that cannot be read; kConfig where standard
  // input was asked and holds nothing.
  [[nodiscard]] std::optional<std::string> next();

 private:
  [[nodiscard]] std::optional<std::string> next_line();

  bool chat_ = false;
  bool messages_ = false;
  std::string name_ = "--prompt";
  std::vector<std::string> texts_;
  std::vector<std::string> files_;  // whole ones; "-": standard input
  std::string lines_;               // a file of one prompt a line
  std::optional<std::vector<std::string>> read_lines_;
  std::size_t at_ = 0;
};

}  // namespace pentatron::apps
