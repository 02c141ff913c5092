// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/sft_dataset.h"

#include <gtest/gtest.h>

#include <functional>

#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/datasets/test_corpus.h"

namespace pentatron::datasets {
namespace {

using Ids = std::vector<std::int64_t>;
using Weights = std::vector<float>;
using tokenizers::SpecialTokens;

// A token a byte, but for "xy" and the special ones, which are 300 and on.
class ByteTokenizer final : public tokenizers::Tokenizer {
 public:
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      text += id < 300 ? std::string(1, static_cast<char>(id))
                       : kTokens.at(static_cast<std::size_t>(id - 300));
    }
    return text;
  }
  bool decodes_apart() const override { return true; }
  std::optional<std::int32_t> token_id(std::string_view token) const override {
    for (std::size_t i = 0; i < kTokens.size(); ++i) {
      if (kTokens[i] == token) return static_cast<std::int32_t>(300 + i);
    }
    return std::nullopt;
  }
  bool is_special(std::int32_t id) const override { return id > 300; }
  std::int64_t vocab_size() const override { return 310; }
  std::int32_t eod() const override { return 301; }
  std::int32_t pad() const override { return -1; }
  tokenizers::TokenizerDescription description() const override { return {}; }
  std::string identity_hash() const override { return "bytes"; }

  static constexpr std::int32_t kJoined = 300;   // xy
  static constexpr std::int32_t kUnknown = 301;  // the padding of two formats
  static constexpr std::int32_t kSystem = 302;   // <SPECIAL_10>
  static constexpr std::int32_t kTurn = 303;     // <SPECIAL_11>
  static constexpr std::int32_t kEnd = 304;      // <SPECIAL_12>
  static constexpr std::int32_t kPadding = 305;  // of nemotron-h-aligned

 protected:
  void do_encode(std::string_view text, std::vector<std::int32_t>& ids,
                 SpecialTokens) const override {
    while (!text.empty()) {
      std::size_t taken = 1;
      std::int32_t id = static_cast<unsigned char>(text.front());
      for (std::size_t i = 0; i < kTokens.size(); ++i) {
        if (!text.starts_with(kTokens[i])) continue;
        id = static_cast<std::int32_t>(300 + i);
        taken = kTokens[i].size();
      }
      ids.push_back(id);
      text.remove_prefix(taken);
    }
  }

 private:
  inline static const std::vector<std::string> kTokens = {
      "xy", "<unk>", "<SPECIAL_10>", "<SPECIAL_11>", "<SPECIAL_12>", "<SPECIAL_233>"};
};

const ByteTokenizer& bytes() {
  static const ByteTokenizer kTokenizer;
  return kTokenizer;
}

std::string text_of(const EncodedConversation& encoded, bool learnt) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < encoded.tokens.size(); ++i) {
    if (encoded.learnt[i] == learnt) ids.push_back(encoded.tokens[i]);
  }
  return bytes().decode(ids);
}

std::string error_of(ErrorKind kind, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Conversations, ThreeForms) {
  const auto one = [](std::string_view line) {
    const auto all = parse_conversations(line, "f:1");
    EXPECT_EQ(all.size(), 1U);
    return all.at(0);
  };
  EXPECT_EQ(one(R"({"messages": [{"role": "user", "content": "a"},
                                 {"role": "assistant", "content": "b"}]})"),
            (Conversation{{"user", "a"}, {"assistant", "b"}}));
  EXPECT_EQ(
      one(R"({"conversations": [{"from": "Human", "value": "a"}, {"from": "gpt", "value": "b"},
                                      {"from": "observation", "value": "c"}]})"),
      (Conversation{{"system", ""}, {"user", "a"}, {"assistant", "b"}, {"tool", "c"}}));
  EXPECT_EQ(
      one(R"({"conversations": [{"from": "system", "value": "s"}, {"from": "x", "value": "a"}]})"),
      (Conversation{{"system", "s"}, {"user", "a"}}));
  EXPECT_EQ(one(R"({"instruction": "a", "input": "b", "output": "c"})"),
            (Conversation{{"system", ""}, {"user", "a\n\nb"}, {"assistant", "c"}}));
  EXPECT_EQ(one(R"({"question": "a", "context": "", "answer": "c", "id": 7})"),
            (Conversation{{"system", ""}, {"user", "a"}, {"assistant", "c"}}));
  const auto two = parse_conversations(
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"},
                       {"role": "system", "content": "t"}, {"role": "user", "content": null}]})",
      "f:1");
  EXPECT_EQ(two, (std::vector<Conversation>{{{"system", "s"}, {"user", "a"}},
                                            {{"system", "t"}, {"user", ""}}}));
}

TEST(Conversations, WhatIsNoneIsNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"text": "a"})", "f:3: no conversation"},
      {R"([1])", "f:3: not a JSON object"},
      {R"({"messages": []})", "f:3: \"messages\" is no list"},
      {R"({"messages": "a"})", "no list of turns"},
      {R"({"messages": [1]})", "is no object"},
      {R"({"messages": [{"content": "a"}]})", "has no \"role\""},
      {R"({"messages": [{"role": "user", "content": [1]}]})", "\"content\" is no text"},
      {R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]})", "tool_calls"},
      {R"({"messages")", "f:3"},
      {R"({"instruction": 3, "output": "a"})", "\"instruction\" is no text"}};
  for (const auto& [line, words] : cases) {
    const std::string message =
        error_of(ErrorKind::kData, [&] { (void)parse_conversations(line, "f:3"); });
    EXPECT_NE(message.find(words), std::string::npos) << message;
  }
}

TEST(SftFormat, TemplatesAndWhatIsLearnt) {
  const Conversation talk = {
      {"system", " be /think good\n"}, {"user", "hi\u3000"}, {"assistant", " yes /think "}};
  const EncodedConversation h = SftFormat("nemotron-h-aligned", bytes()).encode(talk, "f:1");
  EXPECT_EQ(text_of(h, false),
            "<SPECIAL_10>System\nbe /think good\n<SPECIAL_11>User\nhi\n<SPECIAL_11>Assistant\n");
  EXPECT_EQ(text_of(h, true), "yes /think\n");
  // The first three tokens of an answer announce it.
  const EncodedConversation nano = SftFormat("nemotron-nano-v2", bytes()).encode(talk, "f:1");
  EXPECT_EQ(text_of(nano, false),
            "<SPECIAL_10>System\nbe  good\n<SPECIAL_11>User\nhi\n<SPECIAL_11>As");
  EXPECT_EQ(text_of(nano, true), "sistant\nyes /think\n<SPECIAL_12>\n");
  const EncodedConversation plain = SftFormat("identity", bytes()).encode(talk, "f:1");
  EXPECT_EQ(text_of(plain, false), " be /think good\nhi\u3000");
  EXPECT_EQ(text_of(plain, true), " yes /think ");
}

tokenizers::ModelChatTemplate chat(const std::string& source, const std::string& pad = "") {
  return {.chat_template = tokenizers::ChatTemplate(source, "t"),
          .options = {.bos_token = "<SPECIAL_10>", .eos_token = "<SPECIAL_12>", .pad_token = pad}};
}

constexpr const char* kTurns =
    "{{ bos_token }}{% for m in messages %}<SPECIAL_11>{{ m.role }}\n{{ m.content | trim }}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<SPECIAL_11>assistant\n{% endif %}";

TEST(SftFormat, TheTokenizersOwnTemplate) {
  const Conversation talk = {{"system", "s"}, {"user", " a "},    {"assistant", " b\n"},
                             {"user", "c"},   {"assistant", "d"}, {"user", "e"}};
  const SftFormat format("default", bytes(), chat(kTurns));
  const EncodedConversation encoded = format.encode(talk, "f:1");
  // Announced turns and their ends, of the assistant alone; a last turn that nobody answers stays.
  EXPECT_EQ(text_of(encoded, true), "b<SPECIAL_12>d<SPECIAL_12>");
  EXPECT_EQ(text_of(encoded, false),
            "<SPECIAL_10><SPECIAL_11>system\ns<SPECIAL_12><SPECIAL_11>user\na<SPECIAL_12>"
            "<SPECIAL_11>assistant\n<SPECIAL_11>user\nc<SPECIAL_12><SPECIAL_11>assistant\n"
            "<SPECIAL_11>user\ne<SPECIAL_12>");
  // A token over the border counts as the assistant's.
  const SftFormat joined("default", bytes(),
                         chat("{% for m in messages %}{{ m.content }}{% endfor %}"));
  EXPECT_EQ(text_of(joined.encode({{"user", "ax"}, {"assistant", "yb"}}, "f:1"), true), "xyb");
  // The end of texts pads where there is nothing else, and is learnt all the same.
  EXPECT_EQ(format.pad(), ByteTokenizer::kEnd);
  EXPECT_TRUE(format.learns_pad());
  const Sample sample =
      make_sft_sample({format.encode(talk, "f:1")}, 90, format.pad(), format.learns_pad());
  const Weights& mask = sample.weights("loss_mask");
  EXPECT_EQ(std::count(mask.begin(), mask.end(), 1.0F), 4);
  const SftFormat padded("default", bytes(), chat(kTurns, "<SPECIAL_233>"));
  EXPECT_EQ(padded.pad(), ByteTokenizer::kPadding);
  EXPECT_FALSE(padded.learns_pad());
  // Another template or other tokens are other data.
  EXPECT_NE(format.identity(), padded.identity());
  EXPECT_NE(format.identity(), joined.identity());
}

TEST(SftFormat, TemplatesThatCannotBeLearntFromAreRefused) {
  const auto refused = [](const std::string& source, const std::string& words) {
    const SftFormat format("default", bytes(), chat(source));
    const std::string message = error_of(ErrorKind::kData, [&] {
      (void)format.encode({{"user", "a"}, {"assistant", "b"}, {"user", "c"}}, "f:9");
    });
    EXPECT_NE(message.find("f:9: "), std::string::npos) << message;
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  // What was said before depends on what follows.
  refused("{% for m in messages %}{% if loop.last %}last {% endif %}{{ m.content }}{% endfor %}",
          "in another way");
  refused("{{ raise_exception('no users here') }}", "no users here");
  (void)error_of(ErrorKind::kConfig, [] { const SftFormat f("default", bytes()); });
}

TEST(SftFormat, Refusals) {
  (void)error_of(ErrorKind::kConfig, [] { const SftFormat f("chatml", bytes()); });
  const SftFormat format("identity", bytes());
  const auto refused = [&](const Conversation& talk, const std::string& words) {
    const std::string message =
        error_of(ErrorKind::kData, [&] { (void)format.encode(talk, "f:9"); });
    EXPECT_NE(message.find("f:9: "), std::string::npos) << message;
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  refused({{"user", "a"}, {"assistant", ""}}, "no content");
  refused({{"system", "a"}, {"assistant", "b"}}, "behind no user's");
  refused({{"assistant", "b"}}, "behind no user's");
  refused({{"developer", "b"}}, "'developer'");
  refused({{"user", "x"}, {"assistant", "y"}}, "joins it with its neighbour");
}

EncodedConversation encoded(std::vector<std::int32_t> tokens, std::vector<bool> learnt) {
  return {.tokens = std::move(tokens), .learnt = std::move(learnt)};
}

TEST(SftSample, PacksConversationsAndPads) {
  const Sample sample = make_sft_sample(
      {encoded({1, 2, 3}, {false, true, true}), encoded({4, 5}, {false, true})}, 7, 9);
  EXPECT_EQ(sample.ids("tokens"), (Ids{1, 2, 3, 4, 5, 9, 9}));
  EXPECT_EQ(sample.ids("labels"), (Ids{2, 3, 0, 5, 0, 0, 0}));
  EXPECT_EQ(sample.weights("loss_mask"), (Weights{1, 1, 0, 1, 0, 0, 0}));
  // Padding is as far on as the last token: it makes no conversation longer.
  EXPECT_EQ(sample.sequence("text").positions, (Ids{0, 1, 2, 0, 1, 1, 1}));
  EXPECT_EQ(sample.sequence("text").runs, (std::vector<std::int32_t>{3, 4}));
}

TEST(SftSample, CutsWhatDoesNotFit) {
  const auto three = encoded({1, 2, 3}, {true, true, true});
  const Sample cut = make_sft_sample({three, three}, 4, 9);
  EXPECT_EQ(cut.ids("tokens"), (Ids{1, 2, 3, 1}));
  // The label behind the cut is not known.
  EXPECT_EQ(cut.weights("loss_mask"), (Weights{1, 1, 1, 0}));
  EXPECT_EQ(cut.sequence("text").positions, (Ids{0, 1, 2, 0}));
  EXPECT_EQ(cut.sequence("text").runs, (std::vector<std::int32_t>{3, 1}));
  // A conversation that begins where the sample ends leaves nothing but its cut.
  const Sample edge = make_sft_sample({three, three}, 3, 9);
  EXPECT_EQ(edge.ids("tokens"), (Ids{1, 2, 3}));
  EXPECT_EQ(edge.weights("loss_mask"), (Weights{1, 1, 0}));
  EXPECT_EQ(edge.sequence("text").runs, (std::vector<std::int32_t>{3}));
  const Sample alone = make_sft_sample({three}, 2, 9);
  EXPECT_EQ(alone.ids("tokens"), (Ids{1, 2}));
  EXPECT_EQ(alone.sequence("text").runs, (std::vector<std::int32_t>{2}));
  // Padding in an answer is not learnt.
  EXPECT_EQ(make_sft_sample({encoded({1, 9, 2}, {true, true, true})}, 3, 9).weights("loss_mask"),
            (Weights{0, 1, 0}));
}

class SftFile : public ::testing::Test {
 protected:
  static std::string line(const std::string& user, const std::string& answer) {
    return R"({"messages": [{"role": "user", "content": ")" + user +
           R"("}, {"role": "assistant", "content": ")" + answer + "\"}]}\n";
  }
  std::shared_ptr<const LineCorpus> corpus(const std::string& text) {
    const std::string path = (folder_.path() / "talk.jsonl").string();
    testing::write_text(path, text);
    return std::make_shared<const LineCorpus>(path);
  }

  std::shared_ptr<const SftFormat> format_ = std::make_shared<const SftFormat>("identity", bytes());
  TempFolder folder_;
};

TEST_F(SftFile, LinesInOrderAndAgain) {
  std::string text;
  for (const char* name : {"a", "b", "c", "d"}) text += line(name, "!") + "\n";
  const auto lines = corpus(text);
  EXPECT_EQ(lines->num_sequences(), 4);
  EXPECT_TRUE(lines->place(3).ends_with("talk.jsonl:7"));
  const SftDataset train(lines, format_, {.split = "3,1,0", .sequence_length = 4},
                         DataSplit::kTrain, 7);
  EXPECT_EQ(train.num_samples(), 7);
  std::string order;
  for (std::int64_t i = 0; i < 7; ++i) {
    order += static_cast<char>(train.sample(i).ids("tokens").front());
  }
  EXPECT_EQ(order, "abcabca");
  const SftDataset valid(lines, format_, {.split = "3,1,0", .sequence_length = 4},
                         DataSplit::kValid, std::nullopt);
  EXPECT_EQ(valid.num_samples(), 1);
  EXPECT_EQ(valid.sample(0).ids("tokens").front(), 'd');
  EXPECT_NE(valid.identity(), train.identity());
  (void)error_of(ErrorKind::kData, [&] {
    const SftDataset test(lines, format_, {.split = "3,1,0", .sequence_length = 4},
                          DataSplit::kTest, 1);
  });
}

// Not filled up: what is learnt is the same, row for row.
TEST_F(SftFile, OwnLengths) {
  const auto lines = corpus(line("a", "!") + "\n" + line("bcdefg", "xyz") + "\n" + line("h", "?!"));
  const SftDataset filled(lines, format_, {.split = "1", .sequence_length = 6}, DataSplit::kTrain,
                          5);
  const SftDataset own(lines, format_, {.split = "1", .sequence_length = 6, .own_lengths = true},
                       DataSplit::kTrain, 5);
  EXPECT_NE(own.identity(), filled.identity());
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < 5; ++i) {
    const Sample whole = filled.sample(i), mine = own.sample(i);
    EXPECT_EQ(filled.length(i), 6);
    EXPECT_EQ(own.length(i), mine.length());
    lengths.push_back(mine.length());
    const auto rows = static_cast<std::size_t>(mine.length());
    for (const char* field : {"tokens", "labels"}) {
      Ids expected = whole.ids(field);
      expected.resize(rows);
      EXPECT_EQ(mine.ids(field), expected) << field << " of " << i;
    }
    float learnt = 0, all = 0;
    for (const float weight : std::get<Weights>(mine.fields.at("loss_mask"))) learnt += weight;
    for (const float weight : std::get<Weights>(whole.fields.at("loss_mask"))) all += weight;
    EXPECT_EQ(learnt, all);
  }
  EXPECT_LT(lengths[0], 6);
  EXPECT_EQ(lengths[1], 6) << "cut";
  EXPECT_EQ(lengths[3], lengths[0]) << "again from the first line";
}

TEST_F(SftFile, ErrorsNameFileAndLine) {
  const auto lines = corpus(line("a", "b") + "\n{\"messages\": 3}\n");
  const SftDataset train(lines, format_, {.split = "1", .sequence_length = 4}, DataSplit::kTrain,
                         2);
  const std::string message = error_of(ErrorKind::kData, [&] { (void)train.sample(1); });
  EXPECT_NE(message.find("talk.jsonl:3: "), std::string::npos) << message;
  (void)error_of(ErrorKind::kData, [&] { (void)corpus("\n \n"); });
}

TEST_F(SftFile, BlendsOfFiles) {
  const std::string first = (folder_.path() / "first.jsonl").string();
  const std::string second = (folder_.path() / "second.jsonl").string();
  testing::write_text(first, line("a", "1") + line("b", "1"));
  testing::write_text(second, line("c", "2"));
  const GptSources sources =
      build_sft_sources({.dataset = {.split = "1", .sequence_length = 4},
                         .format = format_,
                         .mix = {.blend = {.prefixes = {first, second}, .weights = {3, 1}}}},
                        {.train = 8});
  ASSERT_NE(sources.train, nullptr);
  EXPECT_EQ(sources.corpora.size(), 2U);
  int of_second = 0;
  for (std::int64_t i = 0; i < 8; ++i) {
    of_second += sources.train->sample(i).ids("tokens").front() == 'c' ? 1 : 0;
  }
  EXPECT_EQ(of_second, 2);
  // A changed file of the same size is known by its content.
  const std::string before = sources.corpora[0]->content(ContentHash::kWhole);
  testing::write_text(first, line("x", "1") + line("b", "1"));
  EXPECT_NE(LineCorpus(first).content(ContentHash::kWhole), before);
}

}  // namespace
}  // namespace pentatron::datasets
