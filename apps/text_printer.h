// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pentatron/tokenizers/streaming_decoder.h"

namespace pentatron::apps {

// Generated text on standard output, as far as it is certain: characters that are not whole, and
// what may yet be the begin of a stop text, wait.
class TextPrinter final {
 public:
  // `prints` false: follows the text, for a rank that must stop where the others do. `tokenizer`
  // must outlive it. `context`: the tokens before the first, where their text stands before it, so
  // that what goes between them is printed (blanks that some tokenizers leave out at a begin).
  TextPrinter(const tokenizers::Tokenizer& tokenizer, std::string prompt,
              std::vector<std::string> stops, bool prints,
              std::span<const std::int32_t> context = {});

  // False once a stop text has come up; it and what follows are not printed.
  [[nodiscard]] bool add(std::int32_t token);
  // The rest, and a line end.
  void finish();

 private:
  void take(const std::string& text);
  void print(std::size_t bytes);

  tokenizers::StreamingDecoder decoder_;
  std::string text_;  // to be printed; at first the prompt's
  std::vector<std::string> stops_;
  std::size_t searched_ = 0;  // of text_: no stop text is looked for in the prompt
  bool prints_;
  bool stopped_ = false;
};

}  // namespace pentatron::apps
