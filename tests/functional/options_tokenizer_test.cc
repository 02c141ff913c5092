// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "tests/functional/tiny_run.h"

// --tokenizer-model and its relatives, through preprocess_data, training and generation.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Ids = std::vector<int>;
using Words = std::vector<std::string>;

std::string visible_byte(int byte) {
  // GPT-2's byte alphabet, for the bytes that the texts here hold.
  if (byte >= 0x21 && byte <= 0x7E) return std::string(1, static_cast<char>(byte));
  const int printable = byte >= 0xA1 && byte <= 0xFF && byte != 0xAD ? byte : -1;
  static int next = 0x100;
  const int code_point = printable > 0 ? printable : next++;
  return {static_cast<char>(0xC0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 63))};
}

// A folder with a byte-level tokenizer.json: the 256 bytes, "th", "the", <s> (256 to 258), which
// the template puts before every text.
fs::path hugging_face_folder() {
  static const fs::path kFolder = [] {
    const fs::path made = new_folder();
    json vocab = json::object();
    for (int byte = 0; byte < 256; ++byte) vocab[visible_byte(byte)] = byte;
    vocab["th"] = 256;
    vocab["the"] = 257;
    const json tokenizer = {
        {"added_tokens", {{{"id", 258}, {"content", "<s>"}, {"special", true}}}},
        {"normalizer", nullptr},
        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
        {"post_processor",
         {{"type", "TemplateProcessing"},
          {"single",
           {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
            {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
          {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {258}}}}}}}},
        {"decoder", {{"type", "ByteLevel"}}},
        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"t h", "th e"}}}}};
    write_file(made / "tokenizer.json", tokenizer.dump());
    write_file(made / "tokenizer_config.json", R"({"eos_token": "<s>"})");
    return made;
  }();
  return kFolder;
}

std::string base64_of(const std::string& bytes) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const unsigned first = static_cast<unsigned char>(bytes[0]);
  const unsigned second = bytes.size() > 1 ? static_cast<unsigned char>(bytes[1]) : 0U;
  return {kAlphabet[first >> 2], kAlphabet[((first & 3) << 4) | (second >> 4)],
          bytes.size() > 1 ? kAlphabet[(second & 15) << 2] : '=', '='};
}

// TikTokenizer's file: the 256 bytes and "dH".
fs::path tiktoken_file() {
  json list = json::array();
  for (int rank = 0; rank < 257; ++rank) {
    const std::string token = rank < 256 ? std::string(1, static_cast<char>(rank)) : "dH";
    list.push_back({{"rank", rank}, {"token_bytes", base64_of(token)}, {"token_str", ""}});
  }
  const fs::path file = new_folder() / "vocab.json";
  write_file(file, list.dump());
  return file;
}

ProgramResult preprocess(const std::string& text, const fs::path& prefix, const Words& options) {
  const fs::path input = new_folder() / "in.jsonl";
  write_file(input, json{{"text", text}}.dump() + "\n");
  Words words{"preprocess_data", "--input", input.string(), "--output-prefix", prefix.string()};
  words.insert(words.end(), options.begin(), options.end());
  return call(words);
}

Ids ids_of(const std::string& text, const Words& options) {
  const fs::path prefix = new_folder() / "out";
  const ProgramResult made = preprocess(text, prefix, options);
  EXPECT_TRUE(made.ok()) << made.describe();
  const std::string bin = read_file(prefix.string() + "_text_document.bin");
  Ids ids;
  for (std::size_t i = 0; i + 1 < bin.size(); i += 2) {
    ids.push_back(static_cast<unsigned char>(bin[i]) +
                  256 * static_cast<unsigned char>(bin[i + 1]));
  }
  return ids;
}

Words hugging_face(const Words& more = {}) {
  Words words{"--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model",
              hugging_face_folder().string()};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words tiktoken(const fs::path& file, int num_special, const char* pattern) {
  return {"--tokenizer-type",
          "TikTokenizer",
          "--tokenizer-model",
          file.string(),
          "--vocab-size",
          std::to_string(num_special + 257),
          "--tiktoken-num-special-tokens",
          std::to_string(num_special),
          "--tiktoken-pattern",
          pattern};
}

}  // namespace

TEST(Options, TokenizerModel) {
  // A folder or its file; the template's token leads unless it is left out.
  EXPECT_EQ(ids_of("thet", hugging_face()), (Ids{258, 257, 't'}));
  EXPECT_EQ(ids_of("thet", hugging_face({"--tokenizer-hf-no-include-special-tokens"})),
            (Ids{257, 't'}));
  EXPECT_EQ(ids_of("the", {"--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model",
                           (hugging_face_folder() / "tokenizer.json").string()}),
            (Ids{258, 257}));
  // A document cannot forge a special token; --append-eod writes the end that the config names.
  EXPECT_EQ(ids_of("<s>", hugging_face({"--append-eod"})), (Ids{258, '<', 's', '>', 258}));

  const fs::path file = tiktoken_file();
  EXPECT_EQ(ids_of("dHx", tiktoken(file, 8, "v1")), (Ids{264, 'x' + 8}));
  EXPECT_EQ(ids_of("dHx", tiktoken(file, 9, "v1")), (Ids{265, 'x' + 9}));
  EXPECT_EQ(ids_of("dHx", tiktoken(file, 8, "v2")), (Ids{'d' + 8, 'H' + 8, 'x' + 8}));

  expect_refusal(preprocess("a", new_folder() / "out", {"--tokenizer-type", "Llama2Tokenizer"}), 2,
                 {"Llama2Tokenizer needs --tokenizer-model"});
  expect_refusal(preprocess("a", new_folder() / "out",
                            {"--tokenizer-type", "Llama2Tokenizer", "--tokenizer-model",
                             (hugging_face_folder() / "tokenizer.json").string()}),
                 3, {"tokenizer.json: not a SentencePiece model"});
}

TEST(Options, TokenizerModelInTraining) {
  const auto with_model = [](const Options& options) {
    return options.without("--vocab-size")
        .with("--tokenizer-type", "HuggingFaceTokenizer")
        .with("--tokenizer-model", hugging_face_folder().string());
  };
  const fs::path folder = new_folder();
  const TinyRun run = train(saving(with_model(base()).with("--train-iters", 1), folder));
  EXPECT_EQ(count(run.program.out, " > padded vocab (size: 259)"), 1U) << run.program.describe();
  const TinyRun more =
      train(with_model(base()).with("--tokenizer-special-tokens", Words{"<one>", "<s>", "<two>"}));
  EXPECT_EQ(count(more.program.out, " > padded vocab (size: 261)"), 1U) << more.program.describe();
  // Other ids: with and without the template, another tokenizer in the checkpoint.
  const fs::path other = new_folder();
  const TinyRun bare = train(saving(
      with_model(base()).with("--train-iters", 1).with("--tokenizer-hf-no-include-special-tokens"),
      other));
  EXPECT_TRUE(bare.program.ok()) << bare.program.describe();
  EXPECT_NE(manifest(folder, 1).at("train_state").at("tokenizer"),
            manifest(other, 1).at("train_state").at("tokenizer"));
  const ProgramResult text =
      call({"generate", "--load", folder, "--prompt", "the", "--max-new-tokens", "1"});
  EXPECT_TRUE(text.ok()) << text.describe();
}

}  // namespace pentatron::functional
