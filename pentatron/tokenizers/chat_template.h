// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace pentatron::tokenizers {

// What a template is rendered with besides its messages.
struct ChatOptions {
  bool add_generation_prompt = true;  // end with the begin of the assistant's turn
  std::string bos_token = {};
  std::string eos_token = {};
  std::string pad_token = {};
  std::string unk_token = {};
  std::optional<std::time_t> now = {};  // for strftime_now(); unset: the clock
};

// A model's chat template (tokenizer_config.json, chat_template.jinja): the part of Jinja that
// templates of models use, run as model libraries run it (trim_blocks and lstrip_blocks on, no
// access to anything but the values given, loop controls). Templates come from outside: nesting,
// work, sizes and output are bounded.
class ChatTemplate final {
 public:
  // `name` stands for the template in messages. kData for what is no template, kUnsupported for a
  // part of Jinja that is not here; both with line and column.
  ChatTemplate(std::string_view source, std::string name);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // The text of a conversation. `messages`: a list of objects with "role" and "content" and what
  // else the template reads; `more` (an object): further variables, such as "tools",
  // "documents" or "enable_thinking". Safe from several threads. kData with line and column where
  // the template refuses the messages (raise_exception) or cannot work with them.
  [[nodiscard]] std::string render(const nlohmann::ordered_json& messages,
                                   const nlohmann::ordered_json& more,
                                   const ChatOptions& options) const;
  // Another one for another source.
  [[nodiscard]] const std::string& identity() const { return identity_; }

 private:
  struct Syntax;
  std::string identity_;
  std::string name_;
  std::unique_ptr<const Syntax> syntax_;
};

// A template with the special tokens that it writes.
struct ModelChatTemplate {
  ChatTemplate chat_template;
  ChatOptions options;
};

// That of a model's folder, or of a tokenizer.json's: chat_template.jinja, else "chat_template" of
// tokenizer_config.json (a text, or a list of which "default" is taken), with the special tokens
// named there. Nothing when the folder has none. kIo, kData for damaged files. `given`: a template
// that stands for the folder's.
[[nodiscard]] std::optional<ModelChatTemplate> load_chat_template(
    const std::filesystem::path& folder_or_file, const std::optional<std::string>& given = {});

}  // namespace pentatron::tokenizers
