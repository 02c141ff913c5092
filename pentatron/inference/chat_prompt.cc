// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/chat_prompt.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/json.h"
#include "pentatron/tokenizers/chat_template.h"

namespace pentatron::inference {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMaxTemplateBytes = 4ULL << 20;

struct Conversation {
  Json messages;
  Json more = Json::object();
};

Conversation read_messages(std::string_view text, const std::string& name) {
  static_cast<void>(parse_json(text, name));  // strict, and bounded in depth
  Json json = Json::parse(text);              // in the order of its keys
  if (json.is_array()) return {.messages = std::move(json)};
  PENTATRON_CHECK(json.is_object() && json.contains("messages"), kData,
                  "{}: expected a list of messages, or an object with \"messages\"", name);
  Conversation conversation;
  conversation.messages = std::move(json["messages"]);
  json.erase("messages");
  conversation.more = std::move(json);
  return conversation;
}

std::string text_of(const tokenizers::Tokenizer& tokenizer, std::optional<std::int32_t> id) {
  return id ? tokenizer.decode_utf8(std::vector<std::int32_t>{*id}) : std::string();
}

// The template that counts, with special tokens from wherever they are known.
tokenizers::ModelChatTemplate find_template(const fs::path& template_file,
                                            const fs::path& tokenizer_path,
                                            const tokenizers::Tokenizer& tokenizer) {
  std::optional<tokenizers::ModelChatTemplate> found;
  if (!tokenizer_path.empty()) found = tokenizers::load_chat_template(tokenizer_path);
  if (!template_file.empty()) {
    tokenizers::ChatTemplate own(read_text_file(template_file, kMaxTemplateBytes),
                                 template_file.string());
    found = tokenizers::ModelChatTemplate{
        .chat_template = std::move(own),
        .options = found ? found->options : tokenizers::ChatOptions{}};
  }
  PENTATRON_CHECK(found.has_value(), kConfig,
                  "the tokenizer ({}) has no chat template; give one with --chat-template",
                  tokenizer_path.empty() ? "without a folder" : tokenizer_path.string());
  tokenizers::ChatOptions& options = found->options;
  if (options.bos_token.empty()) options.bos_token = text_of(tokenizer, tokenizer.bos());
  if (options.eos_token.empty()) {
    options.eos_token = text_of(tokenizer, tokenizer.eos().value_or(tokenizer.eod()));
  }
  return std::move(*found);
}

}  // namespace

ChatPrompt make_chat_prompt(std::string_view messages_json, const std::string& name,
                            const fs::path& template_file, const fs::path& tokenizer_path,
                            const tokenizers::Tokenizer& tokenizer) {
  const Conversation conversation = read_messages(messages_json, name);
  const tokenizers::ModelChatTemplate model =
      find_template(template_file, tokenizer_path, tokenizer);
  ChatPrompt prompt;
  prompt.text = model.chat_template.render(conversation.messages, conversation.more, model.options);
  prompt.tokens = tokenizer.encode(prompt.text, tokenizers::SpecialTokens::kParse);
  // Where the tokenizer puts its first token before every text, the template's is a second one.
  const std::optional<std::int32_t> bos = tokenizer.bos();
  if (bos && prompt.tokens.size() > 1 && prompt.tokens[0] == *bos && prompt.tokens[1] == *bos) {
    prompt.tokens.erase(prompt.tokens.begin());
  }
  const std::vector<std::int32_t> end =
      tokenizer.encode(model.options.eos_token, tokenizers::SpecialTokens::kParse);
  if (!end.empty() && (end.size() == 1 || (end.size() == 2 && end[0] == bos))) {
    prompt.stop_tokens.push_back(end.back());
  }
  return prompt;
}

std::vector<std::int32_t> prompt_of_rank_0(comm::Group& world,
                                           const std::vector<std::int32_t>& mine) {
  if (world.size() == 1) return mine;
  std::string bytes;
  if (world.rank() == 0) {
    bytes.assign(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(mine[0]));
  }
  bytes = comm::all_gather_bytes(world, bytes).at(0);
  std::vector<std::int32_t> tokens(bytes.size() / sizeof(mine[0]));
  std::memcpy(tokens.data(), bytes.data(), bytes.size());
  return tokens;
}

std::string user_message(std::string_view text) {
  const Json messages = Json::array({{{"role", "user"}, {"content", std::string(text)}}});
  return messages.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace pentatron::inference
