// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/datasets/preprocess.h"
#include "pentatron/datasets/test_corpus.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::datasets::testing {

// One token a byte; the end of document is 256.
class ByteTokenizer final : public tokenizers::Tokenizer {
 public:
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
    return std::string(ids.begin(), ids.end());
  }
  [[nodiscard]] std::int64_t vocab_size() const override { return 257; }
  [[nodiscard]] std::int32_t eod() const override { return 256; }
  [[nodiscard]] std::int32_t pad() const override { return -1; }
  [[nodiscard]] tokenizers::TokenizerDescription description() const override { return {}; }
  [[nodiscard]] std::string identity_hash() const override { return "bytes"; }

 protected:
  void do_encode(std::string_view text, std::vector<std::int32_t>& ids,
                 tokenizers::SpecialTokens /*special*/) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
};

struct CorpusRun {
  TempFolder folder;
  PreprocessOptions options;

  explicit CorpusRun(std::string_view text) {
    options.inputs = {(folder.path() / "in.jsonl").string()};
    options.output_prefix = (folder.path() / "out").string();
    write_text(input(), text);
  }
  [[nodiscard]] const std::string& input() const { return options.inputs[0]; }
  PreprocessStats go() { return preprocess(options, ByteTokenizer()); }
  // Message of the error; fails when there is none.
  std::string error(ErrorKind kind = ErrorKind::kData) {
    try {
      (void)go();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return "";
  }
  [[nodiscard]] std::string prefix(const std::string& key = "text") const {
    return options.output_prefix + "_" + key + "_document";
  }
  // Names beside the input.
  [[nodiscard]] std::set<std::string> outputs() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      names.insert(entry.path().filename());
    }
    names.erase("in.jsonl");
    return names;
  }
};

inline std::string many_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += fmt::format("{{\"text\": \"{}\", \"n\": {}}}\n",
                        std::string(static_cast<std::size_t>(i % 97), 'a' + i % 26), i);
  }
  return text;
}

}  // namespace pentatron::datasets::testing
