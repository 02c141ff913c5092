// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

// Cuts a chat template into text and the tokens of its tags, as Jinja does with trim_blocks and
// lstrip_blocks on (which is how model libraries render chat templates).
namespace pentatron::tokenizers::chat {

// Counted from 1; columns in bytes.
struct Place {
  int line = 1;
  int column = 1;
};

enum class TokenKind {
  kText,        // outside of tags
  kPrintBegin,  // {{
  kPrintEnd,    // }}
  kBlockBegin,  // {%
  kBlockEnd,    // %}
  kName,
  kString,  // the characters it stands for
  kInteger,
  kFloat,
  kOperator,  // one of ( ) [ ] { } . , : | ~ + - * / // % ** == != < <= > >= =
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  Place place;
};

// A tag, a comment or a string that does not end, or a character that no expression has: kData,
// naming `name`:line:column. `{% raw %}` is kUnsupported.
[[nodiscard]] std::vector<Token> lex_template(std::string_view source, std::string_view name);

}  // namespace pentatron::tokenizers::chat
