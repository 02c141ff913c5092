// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pentatron::datasets {

struct Turn {
  std::string role;  // system, user, assistant, tool; none: a raw text (is_raw_text)
  std::string content;
  bool operator==(const Turn&) const = default;
};
using Conversation = std::vector<Turn>;

// A text that nobody says: no prompt format writes it, and all of it is learnt.
[[nodiscard]] inline bool is_raw_text(const Conversation& conversation) {
  return conversation.size() == 1 && conversation[0].role.empty();
}

// The conversations of a JSON line, in one of four forms, known by its keys (one whose value is
// null is not there):
// - "messages": [{"role", "content"}, ...]; each message of the system begins another conversation;
// - "conversations" (ShareGPT): [{"from", "value"}, ...]; human and user are the user, gpt,
//   assistant, model, chatgpt, bing and bard the assistant, system, and tool, function and
//   observation a tool, anyone else the user, as in Megatron. An empty system turn is put before
//   them unless one is there;
// - "instruction" (or prompt, query, question) and "output" (or response, completion, answer), with
//   "input" (or context) after a blank line behind the instruction (Alpaca, Dolly): a system turn
//   without content, a user's and an assistant's;
// - "text", where there is none of the others: a raw text, which may be empty.
// None of them is empty. Errors: kData, beginning with `place`, for anything else, and for what
// would be lost: content that is no text, calls of tools.
[[nodiscard]] std::vector<Conversation> parse_conversations(std::string_view line,
                                                            std::string_view place);

}  // namespace pentatron::datasets
