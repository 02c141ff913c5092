// SPDX-License-Identifier: Apache-2.0
// Our side of tokenizers_reference.py:
//   bpe_reference_tool train VOCAB_SIZE MIN_FREQUENCY OUT_FOLDER line|file TEXT_FILE...
//   bpe_reference_tool word_pieces VOCAB_SIZE MIN_FREQUENCY < JSON list of texts > JSON list of
//   tokens bpe_reference_tool encode VOCAB_JSON MERGES_TXT < JSON list of strings > JSON list of id
//   lists bpe_reference_tool split < JSON list of strings > JSON list of lists of word sizes in
//   bytes
#include <filesystem>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/bpe_tokenizer.h"
#include "pentatron/tokenizers/bpe_trainer.h"
#include "pentatron/tokenizers/pre_tokenizer.h"
#include "pentatron/tokenizers/word_piece_trainer.h"

namespace {

using pentatron::tokenizers::BpeTokenizer;

std::vector<std::string> read_texts() {
  const std::string json(std::istreambuf_iterator<char>(std::cin), {});
  return nlohmann::json::parse(json).get<std::vector<std::string>>();
}

void train(const std::vector<std::string>& arguments) {
  namespace tokenizers = pentatron::tokenizers;
  const std::filesystem::path folder = arguments.at(2);
  const std::vector<std::filesystem::path> files(arguments.begin() + 4, arguments.end());
  const auto unit =
      arguments.at(3) == "line" ? tokenizers::TextUnit::kLine : tokenizers::TextUnit::kFile;
  const auto vocabulary = tokenizers::train_bpe_from_files(
      files,
      {.vocab_size = std::stoll(arguments.at(0)), .min_frequency = std::stoll(arguments.at(1))},
      unit);
  vocabulary.save(folder / "vocab.json", folder / "merges.txt");
}

void word_pieces(const std::vector<std::string>& arguments) {
  pentatron::tokenizers::WordPieceTrainer trainer(true);
  for (const std::string& text : read_texts()) trainer.add_text(text);
  const nlohmann::json tokens = trainer.train(
      {.vocab_size = std::stoll(arguments.at(0)), .min_frequency = std::stoll(arguments.at(1))});
  std::cout << tokens.dump() << '\n';
}

void encode(const std::vector<std::string>& arguments) {
  const BpeTokenizer tokenizer(arguments.at(0), arguments.at(1));
  nlohmann::json result = nlohmann::json::array();
  for (const std::string& text : read_texts()) {
    const std::vector<std::int32_t> ids = tokenizer.encode(text);
    PENTATRON_CHECK(tokenizer.decode(ids) == text, kInternal, "decode(encode(text)) differs");
    result.push_back(ids);
  }
  std::cout << result.dump() << '\n';
}

void split() {
  nlohmann::json result = nlohmann::json::array();
  for (const std::string& text : read_texts()) {
    pentatron::tokenizers::PreTokenizer words(text);
    nlohmann::json sizes = nlohmann::json::array();
    for (std::string_view word; words.next(word);) sizes.push_back(word.size());
    result.push_back(std::move(sizes));
  }
  std::cout << result.dump() << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    const std::string& command = arguments.at(0);
    const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
    if (command == "train") {
      train(rest);
    } else if (command == "word_pieces") {
      word_pieces(rest);
    } else if (command == "encode") {
      encode(rest);
    } else if (command == "split") {
      split();
    } else {
      PENTATRON_THROW(kConfig, "expected train, word_pieces, encode or split, got '{}'", command);
    }
  } catch (const std::exception& error) {
    std::cerr << "bpe_reference_tool: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
