// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/functional/tiny_run.h"
#include "tests/functional/tiny_talks.h"

// Samples that are made otherwise than of running text: conversations, and fill in the middle.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The same tokenizer with a chat template.
fs::path chat_folder() {
  static const fs::path kFolder = [] {
    const fs::path made = new_folder() / "chat";
    fs::copy(tokenizer_folder(), made);
    const json config = {
        {"eos_token", "</s>"},
        {"pad_token", "<unk>"},
        {"chat_template",
         "{% for m in messages %}{% if m.content %}{{ m.role[0] }}:{{ m.content }}{{ eos_token }}"
         "{% endif %}{% endfor %}{% if add_generation_prompt %}a:{% endif %}"}};
    write_file(made / "tokenizer_config.json", config.dump());
    return made;
  }();
  return kFolder;
}

std::vector<double> valid_tokens(const TinyRun& run) { return run.series("train", "valid_tokens"); }

}  // namespace

TEST(Options, Sft) {
  const Options identity = talking().with("--sft-tokenizer-prompt-format", "identity");
  // In file order, answers alone: "1" and "3"; "2"; "3"; "4" and "3"; then "5", "6", "7" "3", "8",
  // then "9", "10" "3", "11", "12".
  EXPECT_EQ(valid_tokens(train(identity)), (std::vector<double>{6, 5, 8}));
  // A line feed ends each answer of the usual format.
  EXPECT_EQ(valid_tokens(train(talking())), (std::vector<double>{12, 10, 13}));
  EXPECT_NE(train(talking()).losses(), train(identity).losses());
  expect_refusal(try_train(talking().with("--tokenizer-type", "HuggingFaceTokenizer")).program, 2,
                 {"--sft needs --tokenizer-type SFTTokenizer"});
  expect_refusal(try_train(talking().with("--sft-tokenizer-prompt-format", "default")).program, 2,
                 {"chat template"});
  // The tokenizer's own template: one more token ends each answer than the contents have.
  const Options own = talking()
                          .with("--tokenizer-model", chat_folder().string())
                          .with("--sft-tokenizer-prompt-format", "default");
  const std::vector<double> contents = valid_tokens(train(identity));
  const std::vector<double> templated = valid_tokens(train(own));
  ASSERT_EQ(templated.size(), contents.size());
  for (std::size_t i = 0; i < contents.size(); ++i) EXPECT_GT(templated[i], contents[i]) << i;
  EXPECT_EQ(templated[0], 12);
  expect_refusal(try_train(talking().with("--reset-position-ids")).program, 2,
                 {"drop --reset-position-ids"});
  const fs::path bad = new_folder() / "bad.jsonl";
  write_file(bad, read_file(talks()).substr(0, 400) + "\n");
  expect_refusal(
      try_train(talking().with("--data-path", bad.string()).with("--split", "1")).program, 3,
      {"bad.jsonl:"});
}

// Lines of raw text: every token behind the first is learnt and so is the end, whatever the format;
// beside conversations each line keeps its own rule.
TEST(Sft, RawText) {
  const fs::path folder = new_folder();
  std::string texts, mixed;
  for (int i = 0; i < 40; ++i) {
    const std::string text = json{{"text", "a\n" + std::to_string(i % 10)}}.dump() + "\n";
    texts += text;
    mixed += i % 2 == 0 ? text : json{{"prompt", "q"}, {"answer", "r"}}.dump() + "\n";
  }
  write_file(folder / "texts.jsonl", texts);
  write_file(folder / "mixed.jsonl", mixed);
  const auto of = [&](const char* file, const char* format) {
    return train(talking()
                     .with("--data-path", (folder / file).string())
                     .with("--sft-tokenizer-prompt-format", format));
  };
  // Four lines a step: "a", line feed, digit and end.
  const TinyRun plain = of("texts.jsonl", "identity");
  EXPECT_EQ(valid_tokens(plain), (std::vector<double>{12, 12, 12}));
  const TinyRun formatted = of("texts.jsonl", "nemotron-h-aligned");
  EXPECT_EQ(valid_tokens(formatted), (std::vector<double>{12, 12, 12}));
  EXPECT_EQ(formatted.losses(), plain.losses());
  // Two texts, and two answers of one token.
  EXPECT_EQ(valid_tokens(of("mixed.jsonl", "identity")), (std::vector<double>{8, 8, 8}));
}

// Megatron's evaluation of conversations: a mean of micro-batches' means, which are of one token or
// of several here.
TEST(Sft, EvaluationsAreMeansOfMeans) {
  const Options tokens = talking()
                             .with("--split", "50,50,0")
                             .with("--eval-iters", 2)
                             .with("--micro-batch-size", 1)
                             .with("--skip-train");
  const Options means = tokens.with("--loss-mean", "micro-batches");
  const auto evaluation = [](const Options& options) {
    return train(options).series("validation", "lm_loss").at(0);
  };
  EXPECT_GT(std::abs(evaluation(means) - evaluation(tokens)), 1e-4);
  const Options ranks = means.with("--distributed-backend", "threads")
                            .with("--world-size", 4)
                            .with("--pipeline-model-parallel-size", 2);
  EXPECT_NEAR(evaluation(ranks), evaluation(means), 1e-5);
}

// A template in place of the tokenizer's own, as file, text and in the metadata: the same samples;
// it stays in the checkpoint.
TEST(Options, ChatTemplate) {
  const fs::path folder = new_folder();
  const std::string text =
      json::parse(read_file(chat_folder() / "tokenizer_config.json")).at("chat_template");
  const json config = {{"eos_token", "</s>"}, {"pad_token", "<unk>"}};
  fs::copy(tokenizer_folder(), folder / "bare");
  write_file(folder / "bare" / "tokenizer_config.json", config.dump());
  write_file(folder / "chat.jinja", text);
  const json metadata = {{"library", "sft"},
                         {"class_name", "MegatronTokenizerText"},
                         {"class_path", "megatron.core.tokenizers.text.text_tokenizer"},
                         {"chat_template", text}};
  write_file(folder / "metadata.json", metadata.dump());
  const Options format = talking().with("--sft-tokenizer-prompt-format", "default");
  const Options bare = format.with("--tokenizer-model", (folder / "bare").string());
  expect_refusal(try_train(bare).program, 2, {"chat template"});
  const TinyRun own = train(format.with("--tokenizer-model", chat_folder().string()));
  const TinyRun by_file = train(bare.with("--chat-template", (folder / "chat.jinja").string()));
  EXPECT_EQ(by_file.losses(), own.losses());
  EXPECT_EQ(train(bare.with("--chat-template", text)).losses(), own.losses());
  const Options described = bare.with("--tokenizer-metadata", (folder / "metadata.json").string());
  EXPECT_EQ(train(described).losses(), own.losses());
  expect_refusal(try_train(described.with("--chat-template", text)).program, 2, {"drop one"});
  expect_refusal(try_train(bare.with("--chat-template", "none")).program, 2,
                 {"neither a file nor a template"});
  write_file(folder / "metadata.json", R"({"library": "tiktoken"})");
  expect_refusal(try_train(described).program, 2, {"--tokenizer-metadata", "does not belong"});
  const fs::path saved = new_folder();
  (void)train(saving(bare.with("--chat-template", text).with("--train-iters", 1), saved));
  EXPECT_EQ(read_file(saved / iteration_name(1) / "tokenizer" / "chat_template.jinja"), text);
}

// Packs of different lengths, conversations of one sample on several ranks, dropout.
TEST(Sft, EveryLayoutTrainsTheSame) {
  const Options one = talking()
                          .with("--num-layers", 4)
                          .with("--hidden-dropout", "0.1")
                          .with("--sft-tokenizer-prompt-format", "default")
                          .with("--tokenizer-model", chat_folder().string());
  const TinyRun alone = train(one);
  const auto ranks = [&](std::int64_t size) {
    return one.with("--distributed-backend", "threads").with("--world-size", size);
  };
  const Options tensor = ranks(2).with("--tensor-model-parallel-size", 2);
  const Options pipeline = ranks(2).with("--pipeline-model-parallel-size", 2);
  const Options data = ranks(2).with("--micro-batch-size", 1);
  for (const Options& layout :
       {tensor, tensor.with("--sequence-parallel"), pipeline,
        pipeline.with("--pipeline-schedule", "zb-h1"),
        pipeline.with("--num-virtual-stages-per-pipeline-rank", 2),
        ranks(4)
            .with("--tensor-model-parallel-size", 2)
            .with("--pipeline-model-parallel-size", 2)
            .with("--num-virtual-stages-per-pipeline-rank", 2),
        ranks(4).with("--tensor-model-parallel-size", 2).with("--pipeline-model-parallel-size", 2),
        data.with("--use-megatron-fsdp"),
        ranks(4)
            .with("--tensor-model-parallel-size", 2)
            .with("--micro-batch-size", 1)
            .with("--use-megatron-fsdp"),
        ranks(2).with("--context-parallel-size", 2), data, data.with("--use-distributed-optimizer"),
        one.with("--recompute-granularity", "full")
            .with("--recompute-method", "uniform")
            .with("--recompute-num-layers", 1),
        ranks(4)
            .with("--tensor-model-parallel-size", 2)
            .with("--sequence-parallel")
            .with("--micro-batch-size", 1)
            .with("--use-distributed-optimizer")}) {
    const TinyRun run = train(layout);
    expect_same_losses(run, alone, 1e-5);
    EXPECT_EQ(valid_tokens(run), valid_tokens(alone));
  }
}

// Each conversation on as many ranks as it needs: the losses of one rank, and of the same ranks
// with filled samples; the rows of a rank are bounded, and a run goes on where it stopped.
TEST(Options, DynamicContextParallel) {
  const Options one = talking().with("--hidden-dropout", "0.1");
  const TinyRun alone = train(one);
  const auto dynamic = [&](std::int64_t ranks, std::int64_t cp) {
    return one.with("--distributed-backend", "threads")
        .with("--world-size", ranks)
        .with("--context-parallel-size", cp)
        .with("--micro-batch-size", 1)
        .with("--hybrid-context-parallel")
        .with("--max-seqlen-per-dp-cp-rank", 32);
  };
  for (const Options& layout :
       {dynamic(2, 1), dynamic(2, 2), dynamic(2, 2).with("--cp-comm-type", "all_gather"),
        dynamic(4, 2).with("--use-distributed-optimizer"),
        dynamic(4, 2).with("--min-dynamic-context-parallel-size", 2),
        dynamic(4, 1)
            .with("--tensor-model-parallel-size", 2)
            .with("--sequence-parallel")
            .with("--use-distributed-optimizer")}) {
    const TinyRun run = train(layout);
    expect_same_losses(run, alone, 1e-5);
    EXPECT_EQ(valid_tokens(run), valid_tokens(alone));
  }
  expect_refusal(
      try_train(dynamic(2, 1).with("--max-seqlen-per-dp-cp-rank", 31)).program, 2,
      {"--seq-length 64 by 2 ranks at most, 32 tokens each", "--max-seqlen-per-dp-cp-rank 31"});
  expect_refusal(try_train(dynamic(2, 1).with("--min-dynamic-context-parallel-size", 4)).program, 2,
                 {"--min-dynamic-context-parallel-size 4", "from 1 to 2"});
  expect_no_effect(train(one.with("--max-seqlen-per-dp-cp-rank", 32)).program,
                   "--max-seqlen-per-dp-cp-rank");
  const fs::path folder = new_folder();
  (void)train(resuming(dynamic(2, 2).with("--exit-interval", 2), folder, 1));
  const TinyRun rest = train(resuming(dynamic(2, 2), folder, 1));
  EXPECT_EQ(rest.losses().back(), train(dynamic(2, 2)).losses().back());
}

// From a Hugging Face folder and a file of conversations to a merged model and an adapter that is
// started from again. GPT-2's queries, keys and values are one tensor there.
TEST(Sft, AdaptersOnAHuggingFaceFolder) {
  const fs::path folder = new_folder();
  const auto convert = [&](const char* load, const char* hf, std::vector<std::string> more) {
    std::vector<std::string> words{
        "convert", "export", "--load", (folder / load).string(), "--hf", (folder / hf).string()};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = call(words);
    EXPECT_TRUE(result.ok()) << result.describe();
  };
  const Options talk = talking()
                           .with("--tokenizer-model", chat_folder().string())
                           .with("--sft-tokenizer-prompt-format", "default");
  (void)train(saving(talk, folder / "base"));
  convert("base", "hf", {});
  const Options on_folder =
      talk.with("--tokenizer-model", (folder / "hf").string()).with("--finetune");
  const Options tune = on_folder.with("--load", (folder / "hf").string())
                           .with("--lora-rank", 4)
                           .with("--lora-dora")
                           .with("--lr", "0.02");
  (void)train(saving(tune, folder / "tuned"));
  convert("tuned", "merged", {"--like", (folder / "hf").string()});
  convert("tuned", "adapter", {"--adapter", "--like", (folder / "hf").string()});
  const double merged = train(on_folder.with("--load", (folder / "merged").string())).first_loss();
  EXPECT_NE(merged, train(tune).first_loss());
  EXPECT_NEAR(train(on_folder.with("--load", (folder / "hf").string())
                        .with("--lora-load", (folder / "adapter").string()))
                  .first_loss(),
              merged, 1e-5);
}

// Two data-parallel ranks, ended in the middle and gone on with.
TEST(Resume, ConversationsGoOnBitForBit) {
  const Options two = talking()
                          .with("--distributed-backend", "threads")
                          .with("--world-size", 2)
                          .with("--micro-batch-size", 1)
                          .with("--train-iters", 6)
                          .with("--eval-iters", 1)
                          .with("--hidden-dropout", "0.1");
  const fs::path whole = new_folder();
  const TinyRun straight = train(saving(two, whole, 3));
  const fs::path broken = new_folder();
  const TinyRun first = train(saving(two.with("--exit-interval", 3), broken, 3));
  EXPECT_EQ(first.losses().size(), 3U);
  const TinyRun second = train(resuming(two, broken, 3));
  EXPECT_EQ(state_hash(broken, 6), state_hash(whole, 6));
  const std::vector<double> losses = straight.losses();
  EXPECT_EQ(second.losses(), (std::vector<double>{losses.begin() + 3, losses.end()}));
  // Another text of the same length is other data.
  const fs::path changed = new_folder() / "talks.jsonl";
  std::string text = read_file(talks());
  text[text.find("content\": \"0\"") + 11] = '9';
  write_file(changed, text);
  expect_refusal(try_train(resuming(two.with("--data-path", changed.string()), broken, 3)).program,
                 7, {"other tokens"});
}

TEST(Options, Fim) {
  const fs::path folder = new_folder();
  std::string text;
  for (int i = 0; i < 60; ++i) text += "{\"text\": \"def f" + std::to_string(i) + "(): pass\"}\n";
  write_file(folder / "code.jsonl", text);
  EXPECT_TRUE(
      call({"preprocess_data", "--input", (folder / "code.jsonl").string(), "--output-prefix",
            (folder / "code").string(), "--append-eod", "--tokenizer-type", "HuggingFaceTokenizer",
            "--tokenizer-model", tokenizer_folder().string()})
          .ok());
  const Options plain = of_tokenizer("HuggingFaceTokenizer")
                            .with("--data-path", (folder / "code_text_document").string())
                            .with("--data-cache-path", (folder / "cache").string());
  const Options fim = plain.with("--fim-data").with("--fim-eod-token", "</s>");
  const std::vector<double> usual = train(fim).losses();
  EXPECT_NE(usual, train(plain).losses());
  // Each option changes what is read.
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"--fim-rate", "1"},
                                                        {"--fim-spm-rate", "1"},
                                                        {"--fim-no-prefix", "def f1"},
                                                        {"--fim-prefix-token", "<unk>"},
                                                        {"--fim-middle-token", "<unk>"},
                                                        {"--fim-suffix-token", "<unk>"},
                                                        {"--fim-eod-token", "<unk>"}}) {
    EXPECT_NE(train(fim.with(name, value)).losses(), usual) << name;
  }
  const Options split = fim.with("--fim-rate", "1").with("--fim-split-sample", ":");
  EXPECT_NE(train(split.with("--fim-fragment-rate", "1")).losses(),
            train(split.with("--fim-fragment-rate", "0.01")).losses());
  // Text that is cut gets longer, so padding is for what loses documents' ends: two in a row.
  expect_refusal(try_train(split).program, 2, {"--fim-fragment-rate"});
  expect_refusal(try_train(fim.with("--fim-pad-token", "<none>")).program, 2,
                 {"--fim-pad-token <none>"});
  expect_refusal(try_train(fim.without("--fim-eod-token")).program, 2,
                 {"--fim-eod-token <|endoftext|>"});
  // Its indices have Megatron's names of their own.
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder / "cache")) {
    files += entry.path().filename().string().find("-GPTFIMDataset-train-") != std::string::npos;
  }
  EXPECT_EQ(files, 5U);
}

}  // namespace pentatron::functional
