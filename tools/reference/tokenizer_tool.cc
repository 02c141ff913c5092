// SPDX-License-Identifier: Apache-2.0
// tokenizer_tool TYPE PATH [--special] [--decode] [v1|v2]: reads JSON texts, one a line, from
// standard input and writes their ids as JSON, one list a line (with --decode: an object of ids and
// the text that they decode to). TYPE: a --tokenizer-type. What
// tools/reference/tokenizer_families.py compares with the reference libraries.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/json.h"
#include "pentatron/tokenizers/tokenizer_factory.h"

int main(int argc, char** argv) {
  using namespace pentatron;
  using namespace pentatron::tokenizers;
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 2) {
    std::cerr << "usage: tokenizer_tool TYPE PATH [--special] [--decode] [v1|v2]\n";
    return 2;
  }
  bool special = false;
  bool decode = false;
  std::string pattern;
  for (std::size_t i = 2; i < words.size(); ++i) {
    special = special || words[i] == "--special";
    decode = decode || words[i] == "--decode";
    if (words[i] == "v1" || words[i] == "v2") pattern = words[i];
  }
  try {
    TokenizerOptions options;
    options.tokenizer_type = words[0];
    options.tokenizer_model = words[1];
    options.vocab_file = words[1];
    options.tiktoken_pattern = pattern;
    const auto tokenizer = make_tokenizer(options);
    for (std::string line; std::getline(std::cin, line);) {
      const auto text = parse_json(line, "input").get<std::string>();
      const std::vector<std::int32_t> ids =
          tokenizer->encode(text, special ? SpecialTokens::kParse : SpecialTokens::kAsText);
      nlohmann::json result = ids;
      if (decode) result = {{"ids", ids}, {"text", tokenizer->decode_utf8(ids)}};
      std::cout << result.dump() << "\n";
    }
  } catch (const Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return exit_code(error.kind());
  }
  return 0;
}
