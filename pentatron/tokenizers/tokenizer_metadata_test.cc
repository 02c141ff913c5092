// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/tokenizer_metadata.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/tokenizers/tokenizer_factory.h"
#include "pentatron/tokenizers/tokenizer_files.h"

namespace pentatron::tokenizers {
namespace {

class TokenizerMetadataFile : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& text) {
    const auto path = folder_.path() / "tokenizer_metadata.json";
    write_file_atomically(path, text);
    return path;
  }

  TempFolder folder_;
};

TEST_F(TokenizerMetadataFile, ReadsWhatMegatronWrites) {
  const auto path = write(
      R"({"library": "huggingface", "class_name": "MegatronTokenizerText", "class_path": )"
      R"("megatron.core.tokenizers.text.text_tokenizer", "chat_template": "{{ messages }}"})");
  EXPECT_EQ(read_tokenizer_metadata(path, "HuggingFaceTokenizer").chat_template, "{{ messages }}");
  EXPECT_EQ(read_tokenizer_metadata(write(R"({"library": "tiktoken", "chat_template": null})"),
                                    "TikTokenizer")
                .chat_template,
            std::nullopt);
  for (const char* type :
       {"SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer"}) {
    (void)read_tokenizer_metadata(write(R"({"library": "sentencepiece"})"), type);
  }
}

TEST_F(TokenizerMetadataFile, RefusesWhatDoesNotFit) {
  const auto refuse = [&](ErrorKind kind, const std::string& text, std::string_view part) {
    expect_error(kind, part,
                 [&] { (void)read_tokenizer_metadata(write(text), "HuggingFaceTokenizer"); });
  };
  refuse(ErrorKind::kConfig, R"({"library": "sentencepiece"})", "does not belong to");
  refuse(ErrorKind::kConfig, "{}", "does not belong to");
  refuse(ErrorKind::kUnsupported,
         R"({"library": "huggingface", "class_name": "Own", "class_path": "mine"})", "no code");
  refuse(ErrorKind::kUnsupported, R"({"library": "huggingface", "libary": 1})", "libary");
  refuse(ErrorKind::kData, R"({"library": 3})", "must be a text");
  refuse(ErrorKind::kData, "[]", "expected an object");
  refuse(ErrorKind::kData, "{", "tokenizer_metadata.json");
  expect_error(ErrorKind::kIo, "missing",
               [&] { (void)read_tokenizer_metadata("missing", "HuggingFaceTokenizer"); });
}

TEST_F(TokenizerMetadataFile, OneOfTwoGivesTheChatTemplate) {
  const auto file = folder_.path() / "chat.jinja";
  write_file_atomically(file, "{{ messages[0].content }}");
  EXPECT_EQ(chat_template_text(file.string()), "{{ messages[0].content }}");
  EXPECT_EQ(chat_template_text("{% if x %}{% endif %}"), "{% if x %}{% endif %}");
  expect_error(ErrorKind::kConfig, "neither a file nor a template",
               [] { (void)chat_template_text("missing.jinja"); });
  TokenizerOptions options;
  options.tokenizer_type = "HuggingFaceTokenizer";
  EXPECT_EQ(given_chat_template(options), std::nullopt);
  options.chat_template = file.string();
  EXPECT_EQ(given_chat_template(options), "{{ messages[0].content }}");
  options.metadata =
      write(R"({"library": "huggingface", "chat_template": "{{ messages }}"})").string();
  expect_error(ErrorKind::kConfig, "drop one", [&] { (void)given_chat_template(options); });
  options.chat_template.clear();
  EXPECT_EQ(given_chat_template(options), "{{ messages }}");
  options.metadata.clear();
  options.chat_template = "{% if %}";
  expect_error(ErrorKind::kData, "--chat-template", [&] { (void)given_chat_template(options); });
}

// A checkpoint keeps the template that was given, else the one beside the model's file.
TEST_F(TokenizerMetadataFile, CheckpointsKeepTheChatTemplate) {
  TokenizerOptions options;
  options.tokenizer_type = "Llama2Tokenizer";
  options.tokenizer_model = (folder_.path() / "tokenizer.model").string();
  write_file_atomically(options.tokenizer_model, "model");
  using Files = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(read_tokenizer_files(options), (Files{{"tokenizer_model", "model"}}));
  write_file_atomically(folder_.path() / "chat_template.jinja", "{{ 1 }}");
  EXPECT_EQ(read_tokenizer_files(options),
            (Files{{"tokenizer_model", "model"}, {"chat_template.jinja", "{{ 1 }}"}}));
  options.chat_template = "{{ 2 }}";
  EXPECT_EQ(read_tokenizer_files(options),
            (Files{{"tokenizer_model", "model"}, {"chat_template.jinja", "{{ 2 }}"}}));
}

}  // namespace
}  // namespace pentatron::tokenizers
