// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/comm/group.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::inference {

struct ChatPrompt {
  std::string text;
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> stop_tokens;  // that end the answer, besides the end of document
};

// What a model is asked when it chats: the messages, written by its chat template, with the begin
// of the assistant's turn behind them. `messages_json`: a list of messages, or an object with
// "messages" and further variables of the template ("tools", "documents", ...); `name` stands for
// it in errors. The template is `template_file`, or else that of the tokenizer's folder (kConfig
// when there is none). Special tokens are those of tokenizer_config.json, or else the tokenizer's;
// their texts, wherever they stand, become their ids, as in other libraries. kData for messages
// that are no messages, or that the template refuses.
[[nodiscard]] ChatPrompt make_chat_prompt(std::string_view messages_json, const std::string& name,
                                          const std::filesystem::path& template_file,
                                          const std::filesystem::path& tokenizer_path,
                                          const tokenizers::Tokenizer& tokenizer);

// The prompt of rank 0 on every rank, all of which call: templates may read the clock, and ranks
// must continue one text.
[[nodiscard]] std::vector<std::int32_t> prompt_of_rank_0(comm::Group& world,
                                                         const std::vector<std::int32_t>& mine);

// One message of the user, as such JSON.
[[nodiscard]] std::string user_message(std::string_view text);

}  // namespace pentatron::inference
