// SPDX-License-Identifier: Apache-2.0
// tokenizer_tool TYPE PATH [--special] [--decode] [--spans] [--merges FILE] [v1|v2]: reads JSON
// texts, one a line, from standard input and writes their ids as JSON, one list a line (with
// --decode: an object of ids, the text that they decode to, and what the streaming decoder makes of
// them; with --spans: and the places of the ids in the text). {"hex": "00FF"} instead of a text:
// any bytes; the answer then says whether they come back, too. TYPE: a --tokenizer-type. What
// tools/reference/tokenizer_families.py compares with the reference libraries.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/json.h"
#include "pentatron/tokenizers/streaming_decoder.h"
#include "pentatron/tokenizers/tokenizer_factory.h"

namespace {

using namespace pentatron;
using namespace pentatron::tokenizers;

struct Flags {
  bool special = false;
  bool decode = false;
  bool spans = false;
  std::string pattern;
  std::string merges;
};

std::string bytes_of_hex(const std::string& hex) {
  PENTATRON_CHECK(hex.size() % 2 == 0, kData, "hex of {} digits", hex.size());
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  StreamingDecoder decoder(tokenizer);
  std::string text;
  for (const std::int32_t id : ids) text += decoder.add(id);
  return text + decoder.finish();
}

nlohmann::json answer(const Tokenizer& tokenizer, const nlohmann::json& input, const Flags& flags) {
  const bool bytes = input.is_object();
  const std::string text =
      bytes ? bytes_of_hex(input.at("hex").get<std::string>()) : input.get<std::string>();
  const std::vector<std::int32_t> ids =
      tokenizer.encode(text, flags.special ? SpecialTokens::kParse : SpecialTokens::kAsText);
  if (!flags.decode) return ids;
  const std::string decoded = tokenizer.decode_utf8(ids);
  nlohmann::json result = {
      {"ids", ids}, {"text", decoded}, {"streams", streamed(tokenizer, ids) == decoded}};
  // A template stands before every text.
  if (bytes) {
    result["comes_back"] = tokenizer.decode(ids) == tokenizer.decode(tokenizer.encode("")) + text;
  }
  if (flags.spans) {
    result["spans"] = nlohmann::json::array();
    for (const TokenSpan& span : tokenizer.spans(text, ids)) {
      result["spans"].push_back({span.begin, span.end});
    }
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 2) {
    std::cerr << "usage: tokenizer_tool TYPE PATH [--special] [--decode] [--spans] [--merges FILE] "
                 "[v1|v2]\n";
    return 2;
  }
  Flags flags;
  for (std::size_t i = 2; i < words.size(); ++i) {
    flags.special = flags.special || words[i] == "--special";
    flags.decode = flags.decode || words[i] == "--decode";
    flags.spans = flags.spans || words[i] == "--spans";
    if (words[i] == "--merges" && i + 1 < words.size()) flags.merges = words[i + 1];
    if (words[i] == "v1" || words[i] == "v2") flags.pattern = words[i];
  }
  try {
    TokenizerOptions options;
    options.tokenizer_type = words[0];
    options.tokenizer_model = words[1];
    options.vocab_file = words[1];
    options.merge_file = flags.merges;
    options.tiktoken_pattern = flags.pattern;
    const auto tokenizer = make_tokenizer(options);
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << answer(*tokenizer, parse_json(line, "input"), flags).dump() << "\n";
    }
  } catch (const Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return exit_code(error.kind());
  }
  return 0;
}
