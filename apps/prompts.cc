// SPDX-License-Identifier: Apache-2.0
#include "apps/prompts.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"

namespace pentatron::apps {
namespace {

constexpr std::uint64_t kLongestPrompt = 64ULL << 20;  // bytes

// Up to the limit; what a pipe holds has no size before it is read.
std::string read_standard_input() {
  std::string text;
  char buffer[1 << 16];
  std::size_t got = 0;
  while ((got = std::fread(buffer, 1, sizeof(buffer), stdin)) > 0) {
    text.append(buffer, got);
    PENTATRON_CHECK(text.size() <= kLongestPrompt, kData,
                    "standard input: a prompt of more than {} MiB", kLongestPrompt >> 20);
  }
  return text;
}

std::string read_whole(const std::string& file) {
  if (file != "-") return read_text_file(file, kLongestPrompt);
  std::string text = read_standard_input();
  if (text.ends_with('\n')) text.pop_back();  // that of echo
  PENTATRON_CHECK(!text.empty(), kConfig,
                  "standard input holds no prompt; give --prompt TEXT or --prompt-file FILE");
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::vector<Flags::Spec> prompt_flags() {
  return {
      {.name = "--prompt",
       .value = "TEXT",
       .help = "texts to continue; default: what standard input holds",
       .many = true,
       .also = {"--prompts"}},
      {"--prompt-file", "FILE", "the same from a file; -: standard input", ""},
      {"--prompt-lines", "FILE", "a file of one prompt a line; -: standard input", ""},
      {"--chat", "",
       "prompts are messages to a chat model; prints the answers alone. Without a prompt: a "
       "conversation, a line of standard input a message"},
      {"--messages", "FILE",
       "a chat so far: JSON list of messages, or an object with \"messages\" and \"tools\"", ""},
      {"--chat-template", "FILE", "Jinja template of the chat; default: the tokenizer's", ""}};
}

Prompts::Prompts(const Flags& flags)
    : chat_(flags.has("--chat")),
      messages_(flags.has("--messages")),
      texts_(flags.texts("--prompt")),
      lines_(flags.text("--prompt-lines")) {
  int sources = 0;
  for (const char* name : {"--prompt", "--prompt-file", "--prompt-lines", "--messages"}) {
    sources += flags.has(name) ? 1 : 0;
  }
  PENTATRON_CHECK(sources <= 1, kConfig,
                  "pentatron generate: give exactly one of --prompt, --prompt-file, "
                  "--prompt-lines and --messages");
  PENTATRON_CHECK(!flags.has("--chat-template") || chats(), kConfig,
                  "--chat-template has no effect without --chat or --messages");
  if (flags.has("--prompt-file")) files_.push_back(flags.text("--prompt-file"));
  if (messages_) {
    name_ = flags.text("--messages");
    files_.push_back(name_);
  }
  if (sources > 0) return;
  PENTATRON_CHECK(chat_ || ::isatty(STDIN_FILENO) == 0, kConfig,
                  "pentatron generate: give --prompt TEXT, --prompt-file FILE, or text on "
                  "standard input");
  if (chat_) {
    lines_ = "-";
  } else {
    files_.emplace_back("-");
  }
}

std::optional<std::string> Prompts::next_line() {
  if (is_conversation()) {
    if (::isatty(STDIN_FILENO) == 1) {
      std::fputs("> ", stderr);
      std::fflush(stderr);
    }
    for (std::string line; std::getline(std::cin, line);) {
      if (!line.empty()) return line;
    }
    return std::nullopt;
  }
  if (!read_lines_) {
    read_lines_ =
        lines_of(lines_ == "-" ? read_standard_input() : read_text_file(lines_, kLongestPrompt));
    PENTATRON_CHECK(!read_lines_->empty(), kConfig, "--prompt-lines {}: no line with a prompt",
                    lines_);
  }
  if (at_ == read_lines_->size()) return std::nullopt;
  return (*read_lines_)[at_++];
}

std::optional<std::string> Prompts::next() {
  if (!lines_.empty()) return next_line();
  if (at_ < texts_.size()) return texts_[at_++];
  const std::size_t file = at_ - texts_.size();
  if (file >= files_.size()) return std::nullopt;
  ++at_;
  return read_whole(files_[file]);
}

}  // namespace pentatron::apps
