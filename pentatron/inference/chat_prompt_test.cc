// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/chat_prompt.h"

#include <gtest/gtest.h>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/inference/known_model_test_support.h"

namespace pentatron::inference {
namespace {

namespace fs = std::filesystem;
const test_support::LetterTokenizer kTokenizer;

TEST(ChatPrompt, MessagesThroughTheTemplateOfTheFolder) {
  const TempFolder folder;
  write_file_atomically(folder.path() / "tokenizer_config.json",
                        R"({"eos_token": "g", "chat_template":
    "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}{{ tools | length }}{{ mood }}"})");
  const ChatPrompt prompt =
      make_chat_prompt(R"({"messages": [{"role": "user", "content": "ab"}], "tools": [1, 2],
                           "mood": "c"})",
                       "m", {}, folder.path(), kTokenizer);
  EXPECT_EQ(prompt.text, "abg2c");
  EXPECT_EQ(prompt.tokens, (std::vector<std::int32_t>{0, 1, 6, 7, 2}));
  EXPECT_EQ(prompt.stop_tokens, (std::vector<std::int32_t>{6}));
}

TEST(ChatPrompt, ATemplateOfOnesOwn) {
  const TempFolder folder;
  const fs::path file = folder.path() / "own.jinja";
  write_file_atomically(file, "{{ messages[0].role }}: {{ messages[0].content }}{{ eos_token }}");
  const ChatPrompt prompt =
      make_chat_prompt(user_message("a \"b\"\n"), "--prompt", file, {}, kTokenizer);
  EXPECT_EQ(prompt.text, "user: a \"b\"\n ");  // the tokenizer's end token is a space
  EXPECT_EQ(prompt.stop_tokens, (std::vector<std::int32_t>{7}));
}

TEST(ChatPrompt, RanksTakeThePromptOfTheFirst) {
  config::ParallelConfig parallel;
  parallel.world_size = parallel.tensor_model_parallel_size = 3;
  comm::run_threads({.world_size = 3}, [&](comm::Backend& backend) {
    comm::ParallelContext context(backend, comm::make_grids(parallel));
    const std::vector<std::int32_t> mine(2 + static_cast<std::size_t>(context.rank()),
                                         static_cast<std::int32_t>(5 + context.rank()));
    EXPECT_EQ(prompt_of_rank_0(context.world(), mine), (std::vector<std::int32_t>{5, 5}));
  });
}

TEST(ChatPrompt, WhatIsNoChatIsRefused) {
  const TempFolder folder;
  const fs::path file = folder.path() / "own.jinja";
  write_file_atomically(file, "{{ raise_exception('no ' + messages[0].role) }}");
  const auto refused = [&](ErrorKind kind, const std::string& messages, const std::string& part,
                           const fs::path& chat_template) {
    expect_error(kind, part, [&] {
      (void)make_chat_prompt(messages, "m.json", chat_template, folder.path(), kTokenizer);
    });
  };
  refused(ErrorKind::kData, "[{]", "m.json:1:", file);
  refused(ErrorKind::kData, "3", "m.json: expected a list of messages", file);
  refused(ErrorKind::kData, "[3]", "a message is an object", file);
  refused(ErrorKind::kData, user_message("x"), "the template refuses: no user", file);
  refused(ErrorKind::kConfig, user_message("x"), "--chat-template", {});
}

}  // namespace
}  // namespace pentatron::inference
