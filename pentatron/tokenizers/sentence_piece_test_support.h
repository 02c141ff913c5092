// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/tokenizers/sentence_piece_library.h"
#include "pentatron/tokenizers/sentence_piece_tokenizer.h"

// SentencePiece models for this module's tests: trained here, and what stands in them.
namespace pentatron::tokenizers::testing {

// Made-up words of a to h, and lines in which the first ones are frequent.
struct MadeUpText {
  std::vector<std::string> words;
  std::vector<std::string> lines;
};
inline MadeUpText made_up_text() {
  std::mt19937 engine(2);
  MadeUpText text;
  auto& [words, lines] = text;
  for (int i = 0; i < 60; ++i) {
    std::string word;
    for (unsigned c = 0; c < 5 + engine() % 4; ++c) word += static_cast<char>('a' + engine() % 8);
    words.push_back(word);
  }
  for (int i = 0; i < 500; ++i) {
    std::string line;
    for (int w = 0; w < 8; ++w) line += words[std::min(engine() % 60, engine() % 60)] + " ";
    lines.push_back(line);
  }
  return text;
}
inline std::vector<std::string> some_lines() { return made_up_text().lines; }

// The bytes of a model. `settings`: lines NAME=VALUE of spm_train.
inline std::string trained_model(const std::vector<std::string>& lines,
                                 const std::string& settings) {
  struct Source {
    const std::vector<std::string>* lines;
    std::size_t at = 0;
  };
  static Source source;
  static std::string model;
  source = {&lines};
  model.clear();
  const auto next = [](void*, const char** text, std::size_t* size) {
    if (source.at == source.lines->size()) return false;
    const std::string& line = (*source.lines)[source.at++];
    *text = line.data();
    *size = line.size();
    return true;
  };
  const auto take = [](void*, const char* bytes, std::size_t size) { model.assign(bytes, size); };
  const char* problem = sentence_piece_library().train(settings.c_str(), next, take, nullptr);
  EXPECT_EQ(problem, nullptr) << problem;
  return model;
}

inline std::unique_ptr<SentencePieceTokenizer> tokenizer_of(const std::string& model,
                                                            SentencePieceOptions options = {}) {
  const TempFolder folder;
  write_file_atomically(folder.path() / "tokenizer.model", model);
  return std::make_unique<SentencePieceTokenizer>(folder.path() / "tokenizer.model",
                                                  std::move(options));
}

// The fields of a protobuf message: number, number as a value, bytes as a value.
struct WireField {
  std::uint64_t number = 0;
  std::uint64_t value = 0;
  std::string_view bytes;
};
inline std::vector<WireField> wire_fields(std::string_view message) {
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0; !message.empty(); shift += 7) {
      const auto byte = static_cast<std::uint8_t>(message.front());
      message.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  std::vector<WireField> fields;
  while (!message.empty()) {
    const std::uint64_t tag = varint();
    WireField field;
    field.number = tag >> 3;
    if (tag % 8 == 0) {
      field.value = varint();
    } else {
      const std::size_t size = tag % 8 == 2 ? varint() : tag % 8 == 5 ? 4 : 8;
      field.bytes = message.substr(0, size);
      message.remove_prefix(size);
    }
    fields.push_back(field);
  }
  return fields;
}

// What of a model file a tokenizer.json holds too.
struct SentencePieceContent {
  std::vector<std::pair<std::string, float>> pieces;  // with their scores
  std::string charsmap;
};
inline SentencePieceContent content_of(std::string_view model) {
  SentencePieceContent content;
  for (const WireField& field : wire_fields(model)) {
    if (field.number == 1) {
      auto& [piece, score] = content.pieces.emplace_back("", 0.0F);
      for (const WireField& part : wire_fields(field.bytes)) {
        if (part.number == 1) piece = part.bytes;
        if (part.number == 2) std::memcpy(&score, part.bytes.data(), sizeof(score));
      }
    } else if (field.number == 3) {
      for (const WireField& part : wire_fields(field.bytes)) {
        if (part.number == 2) content.charsmap = part.bytes;
      }
    }
  }
  return content;
}

inline std::string base64_of(std::string_view bytes) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t bits = 0;
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    for (std::size_t i = 0; i < 3; ++i) {
      bits = (bits << 8) | (i < count ? static_cast<std::uint8_t>(bytes[at + i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      text += i <= count ? kAlphabet[(bits >> (18 - 6 * i)) & 63U] : '=';
    }
  }
  return text;
}

}  // namespace pentatron::tokenizers::testing
