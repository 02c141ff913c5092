// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>

#include <set>
#include <sstream>

#include "tests/functional/tiny_run.h"
#include "tests/functional/trained_bpe.h"

// `pentatron generate` on a tiny checkpoint: of numbers (NullTokenizer) and of text (BPE).
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

// A Llama kind of model over tokens, steps 2 and 4 saved.
fs::path numbers_model() {
  static const fs::path kFolder = [] {
    const fs::path made = new_folder();
    const TinyRun run = train(saving(small_llama().with("--train-iters", 4), made, 2));
    return made;
  }();
  return kFolder;
}

constexpr const char* kSentence = "the cat sat on the mat and the rat ran to the hat\n";

// A model that has learnt one sentence by heart.
fs::path text_model() {
  static const fs::path kFolder = [] {
    std::string text;
    std::string lines;
    for (int i = 0; i < 60; ++i) {
      text += kSentence;
      lines += R"({"text": "the cat sat on the mat and the rat ran to the hat\n)";
      lines += R"(the cat sat on the mat and the rat ran to the hat\n"})";
      lines += "\n";
    }
    const fs::path made = trained_bpe(text, 275);
    const TinyRun run = train(saving(with_bpe(base(), made)
                                         .with("--data-path", bpe_corpus(lines, made))
                                         .with("--hidden-size", 32)
                                         .with("--seq-length", 32)
                                         .with("--max-position-embeddings", 64)
                                         .with("--init-method-std", "0.05")
                                         .with("--train-iters", 80),
                                     made / "checkpoints"));
    EXPECT_LT(run.last_loss(), 0.5 * run.first_loss());
    return made / "checkpoints";
  }();
  return kFolder;
}

ProgramResult generate(const fs::path& model, Words more) {
  Words words{"generate", "--load", model.string(), "--threads", "1"};
  words.insert(words.end(), more.begin(), more.end());
  return call(words);
}

// Token ids after the prompt "3 1 4".
std::vector<int> tokens(Words more) {
  Words words{"--prompt", "3 1 4", "--tokens", "--max-new-tokens", "20"};
  words.insert(words.end(), more.begin(), more.end());
  const ProgramResult result = generate(numbers_model(), words);
  EXPECT_TRUE(result.ok()) << result.describe();
  std::vector<int> ids;
  std::istringstream text(result.out);
  for (int id = 0; text >> id;) ids.push_back(id);
  return ids;
}

std::string text_of(Words more) {
  const ProgramResult result = generate(text_model(), std::move(more));
  EXPECT_TRUE(result.ok()) << result.describe();
  return result.out.substr(0, result.out.size() - 1);
}

}  // namespace

TEST(Generate, SameWithAndWithoutCache) {
  const std::vector<int> greedy = tokens({"--temperature", "0"});
  EXPECT_GE(greedy.size(), 2U);
  EXPECT_EQ(tokens({"--temperature", "0", "--no-kv-cache"}), greedy);
  EXPECT_EQ(tokens({"--temperature", "0"}), greedy);
  const Words drawn{"--temperature", "1.3", "--seed", "7"};
  EXPECT_EQ(tokens({"--temperature", "1.3", "--seed", "7", "--no-kv-cache"}), tokens(drawn));
}

// The cache holds keys and values of the heads, of two sizes; on two ranks those of their own.
TEST(Generate, OfLatents) {
  const fs::path folder = new_folder();
  (void)train(saving(base()
                         .with("--multi-latent-attention")
                         .with("--q-lora-rank", 7)
                         .with("--kv-lora-rank", 6)
                         .with("--qk-head-dim", 8)
                         .with("--qk-pos-emb-head-dim", 4)
                         .with("--v-head-dim", 5)
                         .with("--qk-layernorm"),
                     folder));
  const auto greedy = [&](Words more) {
    Words words{"--prompt", "3 1 4", "--tokens", "--max-new-tokens", "12", "--temperature", "0"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = generate(folder, words);
    EXPECT_TRUE(result.ok()) << result.describe();
    return result.out;
  };
  const std::string cached = greedy({});
  EXPECT_GE(cached.size(), 4U);
  EXPECT_EQ(greedy({"--no-kv-cache"}), cached);
  EXPECT_EQ(greedy({"--tensor-model-parallel-size", "2"}), cached);
}

// The checkpoint holds the tokenizer's files; other paths that it names are not opened (A12).
TEST(Generate, TokenizerLiesInTheCheckpoint) {
  const fs::path folder = new_folder();
  fs::copy(text_model(), folder / "moved", fs::copy_options::recursive);
  const fs::path saved = folder / "moved" / iteration_name(80) / "tokenizer";
  EXPECT_EQ(read_file(saved / "vocab_file"), read_file(text_model().parent_path() / "vocab.json"));
  const Words words{"--prompt", "the cat", "--temperature", "0", "--max-new-tokens", "12"};
  const ProgramResult there = generate(text_model(), words);
  const ProgramResult moved = generate(folder / "moved", words);
  EXPECT_TRUE(moved.ok()) << moved.describe();
  EXPECT_EQ(moved.out, there.out);
  EXPECT_EQ(call({"checkpoint", "verify", (folder / "moved").string()}).exit_code, 0);
  // Its files are in the manifest: a changed one is known by its checksum, one too many by its
  // name, and a missing one is asked for. The weights do not depend on them.
  const std::string merges = read_file(saved / "merge_file");
  std::string turned = merges;
  std::swap(turned[turned.size() - 2], turned[turned.size() - 4]);
  const auto damaged = [&](const std::vector<std::string>& parts) {
    expect_refusal(generate(folder / "moved", words), 7, parts);
    expect_refusal(call({"checkpoint", "verify", (folder / "moved").string()}), 7, {parts.front()});
  };
  write_file(saved / "merge_file", turned);
  damaged({"merge_file is damaged: its checksum", "--merge-file"});
  write_file(saved / "merge_file", merges + "\n");
  damaged({"merge_file has " + std::to_string(merges.size() + 1) + " bytes", "--merge-file"});
  write_file(saved / "merge_file", merges);
  write_file(saved / "chat_template.jinja", "another");
  damaged({"the manifest does not list 'chat_template.jinja'", "somebody else"});
  fs::remove(saved / "chat_template.jinja");
  EXPECT_EQ(call({"checkpoint", "verify", (folder / "moved").string()}).exit_code, 0);
  fs::remove_all(saved);
  EXPECT_EQ(call({"checkpoint", "verify", (folder / "moved").string()}).exit_code, 7);
  expect_refusal(generate(folder / "moved", words), 7, {"holds no tokenizer", "--vocab-file"});
  Words named = words;
  const std::string made = text_model().parent_path().string();
  for (const std::string& word : {std::string("--vocab-file"), made + "/vocab.json",
                                  std::string("--merge-file"), made + "/merges.txt"}) {
    named.push_back(word);
  }
  EXPECT_EQ(generate(folder / "moved", named).out, there.out);
}

TEST(Generate, SamplingOptions) {
  const std::vector<int> greedy = tokens({"--temperature", "0"});
  EXPECT_EQ(tokens({"--top-k", "1"}), greedy);
  EXPECT_EQ(tokens({"--top-p", "1e-9"}), greedy);
  std::set<std::vector<int>> different;
  for (const char* seed : {"1", "2", "3", "4"}) {
    different.insert(tokens({"--temperature", "2", "--seed", seed}));
  }
  EXPECT_EQ(different.size(), 4U);
  EXPECT_EQ(tokens({"--temperature", "2", "--seed", "1"}),
            tokens({"--temperature", "2", "--seed", "1"}));
  // Two likeliest tokens at every step: after one prompt, seeds give no third first token.
  std::set<int> first;
  for (int seed = 0; seed < 6; ++seed) {
    const std::vector<int> ids =
        tokens({"--temperature", "100", "--top-k", "2", "--seed", std::to_string(seed)});
    if (!ids.empty()) first.insert(ids.front());
  }
  EXPECT_LE(first.size(), 2U);
  const ProgramResult both =
      generate(numbers_model(), {"--prompt", "3", "--top-k", "2", "--top-p", "0.5"});
  expect_refusal(both, 2, {"--top-k 2", "--top-p 0.5"});
  expect_refusal(generate(numbers_model(), {"--prompt", "3", "--temperature", "-1"}), 2,
                 {"--temperature"});
  expect_refusal(generate(numbers_model(), {"--prompt", "3", "--top-p", "1.5"}), 2,
                 {"--top-p 1.5"});
}

TEST(Generate, LengthAndPrompt) {
  EXPECT_LE(tokens({"--max-new-tokens", "5"}).size(), 5U);
  for (const int id : tokens({"--temperature", "2"})) {
    EXPECT_GE(id, 0);
    EXPECT_LT(id, 63);  // 63 ends the text
  }
  expect_refusal(generate(numbers_model(), {"--prompt", "3", "--max-new-tokens", "64"}), 2,
                 {"64", "--max-new-tokens"});
  expect_refusal(generate(numbers_model(), {}), 2, {"--prompt", "--prompt-file"});
  expect_refusal(generate(numbers_model(), {"--prompt", ""}), 2, {"prompt"});
  expect_refusal(generate(numbers_model(), {"--prompt", "3 77"}), 3, {"77"});
  const fs::path file = new_folder() / "prompt.txt";
  write_file(file, "3 1 4");
  const ProgramResult from_file = generate(
      numbers_model(),
      {"--prompt-file", file.string(), "--tokens", "--temperature", "0", "--max-new-tokens", "20"});
  const ProgramResult direct =
      generate(numbers_model(),
               {"--prompt", "3 1 4", "--tokens", "--temperature", "0", "--max-new-tokens", "20"});
  EXPECT_EQ(from_file.out, direct.out) << from_file.describe();
}

TEST(Generate, SeveralPromptsAndSpellings) {
  const Words drawing{"--temperature", "0", "--num-tokens-to-generate", "4"};
  const auto lines = [&](Words more) {
    more.insert(more.end(), drawing.begin(), drawing.end());
    const ProgramResult result = generate(numbers_model(), more);
    EXPECT_TRUE(result.ok()) << result.describe();
    return result.out;
  };
  const std::string both = lines({"--prompt", "3 1 4", "--prompt", "5 9"});
  EXPECT_EQ(both, lines({"--prompt", "3 1 4"}) + lines({"--prompt", "5 9"}));
  EXPECT_EQ(both, lines({"--prompts", "3 1 4", "5 9", "--top_k", "0"}));
  const fs::path file = new_folder() / "prompts.txt";
  write_file(file, "3 1 4\n\n5 9\n");
  EXPECT_EQ(both, lines({"--prompt-lines", file.string()}));
  // Standard input, and ranks that do not read it.
  const std::string script = "printf '3 1 4\\n5 9\\n' | \"$0\" generate --load '" +
                             numbers_model().string() +
                             "' --threads 1 --prompt-lines - --temperature 0 --max-new-tokens 4 "
                             "--tensor-model-parallel-size 2";
  const ProgramResult piped =
      call({"launch", "--nproc-per-node", "1", "--standalone", "env", "-u", "WORLD_SIZE", "-u",
            "RANK", "bash", "-c", script, std::getenv("PENTATRON_BIN")});
  EXPECT_EQ(piped.out, both) << piped.describe();
}

// Numbers are apart, where the prompt ends as well (F16); so are words that begin with a blank.
TEST(Generate, F16_TheWordBehindThePrompt) {
  const Words words{"--prompt", "3 1 4", "--temperature", "0", "--max-new-tokens", "3"};
  const ProgramResult result = generate(numbers_model(), words);
  Words ids = words;
  ids.push_back("--tokens");
  EXPECT_EQ(result.out, "3 1 4 " + generate(numbers_model(), ids).out) << result.describe();
}

TEST(Generate, F16_PromptsThatLookLikeOptionsAndHugeLengths) {
  expect_refusal(generate(numbers_model(), {"--prompt", "--help"}), 2,
                 {"--prompt needs a value", "--prompt=--help"});
  expect_refusal(generate(numbers_model(), {"--prompt", "-- hi"}), 3, {"hi"});
  expect_refusal(
      generate(numbers_model(), {"--prompt", "3", "--max-new-tokens", "9223372036854775807"}), 2,
      {"9223372036854775807", "--max-new-tokens"});
}

TEST(Generate, CheckpointStepAndPrecision) {
  const std::vector<int> newest = tokens({"--temperature", "0"});
  EXPECT_EQ(tokens({"--temperature", "0", "--ckpt-step", "4"}), newest);
  const ProgramResult older =
      generate(numbers_model(), {"--prompt", "3 1 4", "--ckpt-step", "2", "--max-new-tokens", "4"});
  EXPECT_TRUE(older.ok()) << older.describe();
  EXPECT_EQ(count(older.err, "from iteration 2"), 1U) << older.err;
  expect_refusal(generate(numbers_model(), {"--prompt", "3", "--ckpt-step", "3"}), 7, {"3"});
  EXPECT_EQ(tokens({"--temperature", "0", "--precision", "fp64"}), newest);
}

// Threads of one process, and processes of a launcher.
TEST(Generate, RanksShareTheModel) {
  const std::vector<int> alone = tokens({"--temperature", "0"});
  const Words tp{"--temperature", "0", "--tensor-model-parallel-size", "2"};
  const Words pp{"--temperature", "0", "--pipeline-model-parallel-size", "2"};
  EXPECT_EQ(tokens(tp), alone);
  EXPECT_EQ(tokens(pp), alone);
  Words both = tp;
  both.insert(both.end(), {"--pipeline-model-parallel-size", "2"});
  EXPECT_EQ(tokens(both), alone);
  Words launched{"launch",    "--nproc-per-node",
                 "2",         "generate",
                 "--load",    numbers_model().string(),
                 "--threads", "1",
                 "--prompt",  "3 1 4",
                 "--tokens",  "--max-new-tokens",
                 "20"};
  launched.insert(launched.end(), pp.begin(), pp.end());
  const ProgramResult processes = call(launched);
  EXPECT_TRUE(processes.ok()) << processes.describe();
  std::vector<int> ids;
  std::istringstream text(processes.out);
  for (int id = 0; text >> id;) ids.push_back(id);
  EXPECT_EQ(ids, alone) << processes.describe();
  expect_refusal(generate(numbers_model(), {"--prompt", "3", "--tensor-model-parallel-size", "3"}),
                 2, {"--tensor-model-parallel-size 3"});
}

TEST(Generate, WritesWhatItLearnt) {
  const std::string text =
      text_of({"--prompt", "the cat sat", "--temperature", "0", "--max-new-tokens", "12"});
  EXPECT_TRUE(text.starts_with("the cat sat on the mat")) << text;
}

TEST(Generate, StopsBeforeTheText) {
  const Words common{"--prompt", "the cat sat", "--temperature", "0", "--max-new-tokens", "30"};
  Words stopping = common;
  stopping.insert(stopping.end(), {"--stop", "nowhere", " mat"});
  const std::string whole = text_of(common);
  const std::size_t at = whole.find(" mat");
  ASSERT_NE(at, std::string::npos) << whole;
  EXPECT_EQ(text_of(stopping), whole.substr(0, at));
}

// The template writes the text that the model has learnt; the answer is printed alone.
TEST(Generate, ChatsThroughATemplate) {
  const fs::path folder = new_folder();
  write_file(
      folder / "chat.jinja",
      "{% for m in messages %}{% if m.role == 'user' %}the {{ m.content | lower }}{% endif %}"
      "{% endfor %}");
  write_file(folder / "messages.json", R"([{"role": "system", "content": "?"},
                                           {"role": "user", "content": "CAT sat"}])");
  const std::string plain =
      text_of({"--prompt", "the cat sat", "--temperature", "0", "--max-new-tokens", "12"});
  const Words common{"--chat-template",  (folder / "chat.jinja").string(),
                     "--temperature",    "0",
                     "--max-new-tokens", "12"};
  Words words = common;
  words.insert(words.end(), {"--chat", "--prompt", "CAT sat"});
  EXPECT_EQ("the cat sat" + text_of(words), plain);
  words = common;
  words.insert(words.end(), {"--messages", (folder / "messages.json").string()});
  EXPECT_EQ("the cat sat" + text_of(words), plain);
  expect_refusal(generate(text_model(), {"--chat", "--prompt", "x"}), 2, {"--chat-template"});
  expect_refusal(generate(text_model(), {"--prompt", "x", "--chat-template", "y"}), 2,
                 {"--chat-template", "no effect"});
  expect_refusal(generate(text_model(), {"--prompt", "x", "--messages", "y"}), 2, {"exactly one"});
}

}  // namespace pentatron::functional
