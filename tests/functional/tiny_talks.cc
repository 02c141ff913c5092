// SPDX-License-Identifier: Apache-2.0
#include "tests/functional/tiny_talks.h"

#include <nlohmann/json.hpp>

namespace pentatron::functional {

namespace fs = std::filesystem;
using nlohmann::json;

fs::path tokenizer_folder() {
  static const fs::path kFolder = [] {
    const fs::path made = new_folder();
    json vocab = json::object();
    int next = 0;
    // GPT-2's alphabet: control bytes, space and what lies above "~" are shown as other characters.
    int shown = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool plain =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
      const int code = plain ? byte : shown++;
      const std::string text = code < 0x80 ? std::string(1, static_cast<char>(code))
                                           : std::string{static_cast<char>(0xC0 | (code >> 6)),
                                                         static_cast<char>(0x80 | (code & 63))};
      vocab[text] = next++;
    }
    json added = json::array();
    for (const char* const token :
         {"</s>", "<unk>", "<SPECIAL_10>", "<SPECIAL_11>", "<SPECIAL_12>", "<SPECIAL_233>",
          "<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>", "<file>"}) {
      added.push_back({{"id", next++}, {"content", token}, {"special", true}});
    }
    const json tokenizer = {
        {"added_tokens", added},
        {"normalizer", nullptr},
        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
        {"post_processor", nullptr},
        {"decoder", {{"type", "ByteLevel"}}},
        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}}};
    write_file(made / "tokenizer.json", tokenizer.dump());
    write_file(made / "tokenizer_config.json", R"({"eos_token": "</s>"})");
    return made;
  }();
  return kFolder;
}

Options of_tokenizer(const std::string& type) {
  return base()
      .with("--tokenizer-type", type)
      .with("--tokenizer-model", tokenizer_folder().string())
      .without("--vocab-size")
      .with("--seq-length", 64)
      .with("--max-position-embeddings", 64);
}

fs::path talks() {
  static const fs::path kFile = [] {
    const fs::path made = new_folder() / "talks.jsonl";
    std::string text;
    for (int i = 0; i < 40; ++i) {
      const std::string number = std::to_string(i);
      const std::string answer = std::to_string(i + 1);
      if (i % 3 == 0) {
        text += R"({"messages": [{"role": "user", "content": ")" + number +
                R"("}, {"role": "assistant", "content": ")" + answer +
                R"("}, {"role": "system", "content": ""}, {"role": "user", "content": "2"},)" +
                R"( {"role": "assistant", "content": "3"}]})" + "\n";
      } else if (i % 3 == 1) {
        text += R"({"conversations": [{"from": "human", "value": ")" + number +
                R"("}, {"from": "gpt", "value": ")" + answer + R"("}]})" + "\n";
      } else {
        text += R"({"instruction": ")" + number + R"(", "output": ")" + answer + R"("})" + "\n";
      }
    }
    write_file(made, text);
    return made;
  }();
  return kFile;
}

Options talking() {
  return of_tokenizer("SFTTokenizer")
      .without("--data-cache-path")
      .with("--data-path", talks().string())
      .with("--sft");
}

}  // namespace pentatron::functional
