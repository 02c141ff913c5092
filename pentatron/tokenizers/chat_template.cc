// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/chat_template.h"

#include <nlohmann/json.hpp>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/json.h"
#include "pentatron/base/sha256.h"
#include "pentatron/tokenizers/template_evaluator.h"
#include "pentatron/tokenizers/template_parser.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::tokenizers {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxTemplateBytes = 4ULL << 20;
constexpr std::uint64_t kMaxConfigBytes = 64ULL << 20;

// A special token is a text, or an object that holds it.
std::string token_text(const nlohmann::json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  return found->is_object() ? found->value("content", std::string()) : std::string();
}

std::optional<std::string> template_of(const nlohmann::json& config, const std::string& name) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  PENTATRON_CHECK(found->is_array(), kData, "{}: chat_template is neither a text nor a list", name);
  for (const nlohmann::json& item : *found) {
    if (item.is_object() && item.value("name", std::string()) == "default") {
      return item.value("template", std::string());
    }
  }
  PENTATRON_THROW(kData, "{}: none of the chat templates is named 'default'", name);
}

}  // namespace

struct ChatTemplate::Syntax {
  chat::Statements statements;
};

ChatTemplate::ChatTemplate(std::string_view source, std::string name) : name_(std::move(name)) {
  PENTATRON_CHECK(source.size() <= kMaxTemplateBytes, kData,
                  "{}: a chat template of {} bytes; at most {}", name_, source.size(),
                  kMaxTemplateBytes);
  PENTATRON_CHECK(replace_invalid_utf8(source) == source, kData, "{}: is not valid UTF-8", name_);
  syntax_ = std::make_unique<Syntax>(Syntax{chat::parse_template(source, name_)});
  identity_ = sha256_hex(source);
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::string ChatTemplate::render(const nlohmann::ordered_json& messages,
                                 const nlohmann::ordered_json& more,
                                 const ChatOptions& options) const {
  using chat::Value;
  PENTATRON_CHECK(messages.is_array() && !messages.empty(), kData,
                  "messages are a list with at least one message");
  for (const nlohmann::ordered_json& message : messages) {
    PENTATRON_CHECK(message.is_object(), kData, "a message is an object with role and content");
  }
  PENTATRON_CHECK(more.is_object() || more.is_null(), kData, "template variables are an object");
  chat::Scope globals;
  // What model libraries set even where nothing was given.
  globals["tools"] = globals["documents"] = Value();
  for (const auto& [key, value] : more.items()) globals[key] = Value::of_json(value);
  globals["messages"] = Value::of_json(messages);
  globals["add_generation_prompt"] = Value::of(options.add_generation_prompt);
  const std::pair<const char*, const std::string*> tokens[] = {{"bos_token", &options.bos_token},
                                                               {"eos_token", &options.eos_token},
                                                               {"pad_token", &options.pad_token},
                                                               {"unk_token", &options.unk_token}};
  for (const auto& [key, token] : tokens) {
    if (!token->empty()) globals[key] = Value::of(*token);
  }
  return chat::Evaluator(globals, name_, options.now.value_or(std::time(nullptr)), {})
      .run(syntax_->statements);
}

std::optional<ModelChatTemplate> load_chat_template(const fs::path& folder_or_file,
                                                    const std::optional<std::string>& given) {
  const fs::path folder =
      fs::is_directory(folder_or_file) ? folder_or_file : folder_or_file.parent_path();
  const fs::path config_file = folder / "tokenizer_config.json";
  nlohmann::json config = nlohmann::json::object();
  if (fs::exists(config_file)) {
    config = parse_json(read_text_file(config_file, kMaxConfigBytes), config_file.string());
    PENTATRON_CHECK(config.is_object(), kData, "{}: is not an object", config_file.string());
  }
  const fs::path own_file = folder / "chat_template.jinja";
  std::optional<std::string> source;
  std::string name = config_file.string() + ": chat_template";
  if (given) {
    source = given;
    name = "--chat-template";
  } else if (fs::exists(own_file)) {
    source = read_text_file(own_file, kMaxTemplateBytes);
    name = own_file.string();
  } else {
    source = template_of(config, config_file.string());
  }
  if (!source) return std::nullopt;
  return ModelChatTemplate{.chat_template = ChatTemplate(*source, name),
                           .options = {.bos_token = token_text(config, "bos_token"),
                                       .eos_token = token_text(config, "eos_token"),
                                       .pad_token = token_text(config, "pad_token"),
                                       .unk_token = token_text(config, "unk_token")}};
}

}  // namespace pentatron::tokenizers
