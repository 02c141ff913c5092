// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <sstream>

#include "tests/functional/tiny_run.h"

// `pentatron score` and `pentatron evaluate` on a tiny checkpoint of numbers.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr int kPeriod = 16;  // tokens, and the length of a sample

std::string period_text(int first, int count) {
  std::string text;
  for (int i = first; i < first + count; ++i) {
    const int place = i % kPeriod;
    text += (i > first ? " " : "") + std::to_string((place * place * 5 + place * 3 + 1) % 63);
  }
  return text;
}

// A corpus of equal documents, each as long as a sample: every sample of every split is the same.
struct Trained {
  fs::path folder;
  double validation_loss = 0;
};
const Trained& trained() {
  static const Trained kMade = [] {
    const fs::path folder = new_folder();
    std::string lines;
    for (int i = 0; i < 60; ++i) lines += R"({"text": ")" + period_text(0, kPeriod) + "\"}\n";
    write_file(folder / "text.jsonl", lines);
    EXPECT_TRUE(call({"preprocess_data", "--input", (folder / "text.jsonl").string(),
                      "--output-prefix", (folder / "corpus").string(), "--tokenizer-type",
                      "NullTokenizer", "--vocab-size", "63"})
                    .ok());
    const TinyRun run =
        train(saving(base()
                         .with("--data-path", (folder / "corpus_text_document").string())
                         .with("--split", "60,40,0")
                         .with("--seq-length", kPeriod)
                         .with("--max-position-embeddings", 24)
                         .with("--init-method-std", "0.2")
                         .with("--num-attention-heads", 4)
                         .with("--train-iters", 3)
                         .with("--eval-interval", 3)
                         .with("--eval-iters", 2),
                     folder / "run"));
    return Trained{folder / "run", run.series("validation", "lm_loss").back()};
  }();
  return kMade;
}

ProgramResult run(const std::string& command, Words more) {
  Words words{command, "--load", trained().folder.string(), "--threads", "1"};
  words.insert(words.end(), more.begin(), more.end());
  return call(words);
}

std::vector<nlohmann::json> lines_of(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

// Scores the lines of a file to standard output.
std::vector<nlohmann::json> score(const fs::path& input, Words more = {}) {
  more.insert(more.end(), {"--input", input.string(), "--output", "-"});
  const ProgramResult result = run("score", more);
  EXPECT_TRUE(result.ok()) << result.describe();
  return lines_of(result.out);
}

void expect_same(const std::vector<nlohmann::json>& a, const std::vector<nlohmann::json>& b,
                 double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i]["tokens"], b[i]["tokens"]);
    ASSERT_EQ(a[i]["logprobs"].size(), b[i]["logprobs"].size());
    for (std::size_t k = 0; k < a[i]["logprobs"].size(); ++k) {
      EXPECT_NEAR(a[i]["logprobs"][k].get<double>(), b[i]["logprobs"][k].get<double>(), tolerance);
    }
  }
}

fs::path several_documents() {
  static const fs::path kFile = [] {
    const fs::path path = new_folder() / "documents.jsonl";
    std::string lines;
    for (const int count : {3, 20, 1, 7, 24, 2}) {
      lines += R"({"id": )" + std::to_string(count) + R"(, "text": ")" + period_text(count, count) +
               "\"}\n";
    }
    write_file(path, lines);
    return path;
  }();
  return kFile;
}

}  // namespace

// The loss that training's evaluation prints on the same tokens.
TEST(Score, MeanIsTheLossOfTrainingsEvaluation) {
  const fs::path input = new_folder() / "sample.jsonl";
  write_file(input, R"({"text": ")" + period_text(0, kPeriod + 1) + "\"}\n");
  const std::vector<nlohmann::json> lines = score(input);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0]["count"], kPeriod);
  const double loss = -lines[0]["sum"].get<double>() / kPeriod;
  EXPECT_NEAR(loss, trained().validation_loss, 1e-6 * loss);
}

TEST(Score, KeepsOrderAndOtherFields) {
  const std::vector<nlohmann::json> lines = score(several_documents());
  ASSERT_EQ(lines.size(), 6U);
  const int ids[] = {3, 20, 1, 7, 24, 2};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["id"], ids[i]);
    EXPECT_EQ(lines[i]["tokens"].size(), static_cast<std::size_t>(ids[i]));
    EXPECT_EQ(lines[i]["logprobs"].size(), static_cast<std::size_t>(ids[i] - 1));
    EXPECT_EQ(lines[i]["count"], ids[i] - 1);
    EXPECT_TRUE(lines[i]["text"].is_string());
    double sum = 0;
    for (const auto& logprob : lines[i]["logprobs"]) {
      EXPECT_LT(logprob.get<double>(), 0);
      sum += logprob.get<double>();
    }
    EXPECT_NEAR(lines[i]["sum"].get<double>(), sum, 1e-6 * std::abs(sum));
  }
  // What was written can be scored again, by its ids.
  const fs::path again = new_folder() / "again.jsonl";
  std::string text;
  for (const auto& line : lines) text += line.dump() + "\n";
  write_file(again, text);
  expect_same(score(again), lines, 0);
}

TEST(Score, BatchesAndRanksChangeNothing) {
  const std::vector<nlohmann::json> lines = score(several_documents());
  expect_same(score(several_documents(), {"--micro-batch-tokens", "1"}), lines, 1e-5);
  expect_same(score(several_documents(), {"--tensor-model-parallel-size", "2"}), lines, 1e-5);
  expect_same(score(several_documents(), {"--pipeline-model-parallel-size", "2"}), lines, 1e-5);
  const std::vector<nlohmann::json> exact = score(several_documents(), {"--precision", "fp64"});
  expect_same(exact, lines, 1e-4);
  expect_same(score(several_documents(), {"--precision", "fp64", "--tensor-model-parallel-size",
                                          "2", "--pipeline-model-parallel-size", "2"}),
              exact, 1e-11);
  const ProgramResult launched =
      call({"launch", "--nproc-per-node", "2", "score", "--load", trained().folder.string(),
            "--threads", "1", "--pipeline-model-parallel-size", "2", "--input",
            several_documents().string(), "--output", "-"});
  EXPECT_TRUE(launched.ok()) << launched.describe();
  expect_same(lines_of(launched.out), lines, 1e-5);
}

TEST(Score, OutputHasItsNameOnlyWhenAllIsThere) {
  const fs::path folder = new_folder();
  const fs::path output = folder / "scores.jsonl";
  Words words{"--input", several_documents().string(), "--output", output.string()};
  const ProgramResult first = run("score", words);
  ASSERT_TRUE(first.ok()) << first.describe();
  expect_same(lines_of(read_file(output)), score(several_documents()), 0);
  EXPECT_EQ(count(first.err, "6 documents, 51 predicted tokens"), 1U) << first.err;
  expect_refusal(run("score", words), 2, {"--output", "exists already", "--force"});
  words.push_back("--force");
  EXPECT_TRUE(run("score", words).ok());
  const fs::path bad = folder / "bad.jsonl";
  write_file(bad, "{\"tokens\": [1, 2]}\n\n{\"tokens\": [1, 99]}\n{\"tokens\": [4, 5]}\n");
  const fs::path none = folder / "none.jsonl";
  expect_refusal(run("score", {"--input", bad.string(), "--output", none.string()}), 3,
                 {"bad.jsonl:3:12:", "99", "--on-bad-line"});
  EXPECT_FALSE(fs::exists(none));
  const ProgramResult skipped =
      run("score", {"--input", bad.string(), "--output", "-", "--on-bad-line", "report"});
  EXPECT_TRUE(skipped.ok()) << skipped.describe();
  EXPECT_EQ(lines_of(skipped.out).size(), 2U);
  EXPECT_EQ(count(skipped.err, "bad.jsonl:3:12:"), 1U) << skipped.err;
  expect_refusal(run("score", {"--input", bad.string(), "--output", "-", "--on-bad-line", "no"}), 2,
                 {"--on-bad-line"});
}

TEST(Score, LongDocumentsAreRefusedOrCutIntoWindows) {
  const fs::path input = new_folder() / "long.jsonl";
  write_file(input, R"({"text": ")" + period_text(0, 60) + "\"}\n");
  expect_refusal(run("score", {"--input", input.string(), "--output", "-"}), 3,
                 {"long.jsonl:1:1:", "60 tokens, 25 fit", "--stride"});
  const std::vector<nlohmann::json> lines = score(input, {"--stride", "8", "--seq-length", "16"});
  ASSERT_EQ(lines.at(0)["logprobs"].size(), 59U);
  // The first window, and the second's last eight targets, by hand.
  const fs::path parts = new_folder() / "parts.jsonl";
  write_file(parts, R"({"text": ")" + period_text(0, 17) + "\"}\n" + R"({"text": ")" +
                        period_text(8, 17) + "\"}\n");
  const std::vector<nlohmann::json> windows = score(parts);
  for (std::size_t i = 0; i < 24; ++i) {
    const double expected =
        (i < 16 ? windows.at(0)["logprobs"][i] : windows.at(1)["logprobs"][i - 8]).get<double>();
    EXPECT_NEAR(lines[0]["logprobs"][i].get<double>(), expected, 1e-5) << i;
  }
  expect_refusal(run("score", {"--input", input.string(), "--output", "-", "--stride", "25"}), 2,
                 {"25"});
}

TEST(Score, LogitsGiveTheLogprobs) {
  const fs::path file = new_folder() / "logits.npy";
  const std::vector<nlohmann::json> lines = score(several_documents(), {"--logits", file.string()});
  const std::string bytes = read_file(file);
  constexpr std::size_t kHeader = 128;
  ASSERT_EQ(bytes.size(), kHeader + 57 * 64 * sizeof(float));
  std::vector<float> logits(57 * 64);
  std::memcpy(logits.data(), bytes.data() + kHeader, logits.size() * sizeof(float));
  std::size_t row = 0;
  for (const auto& line : lines) {
    for (std::size_t t = 0; t < line["tokens"].size(); ++t, ++row) {
      if (t + 1 == line["tokens"].size()) continue;
      double sum = 0;
      for (std::size_t v = 0; v < 64; ++v) sum += std::exp(double{logits[row * 64 + v]});
      const double target = logits[row * 64 + line["tokens"][t + 1].get<std::size_t>()];
      EXPECT_NEAR(line["logprobs"][t].get<double>(), target - std::log(sum), 1e-5);
    }
  }
  const fs::path tensors = file.parent_path() / "logits.safetensors";
  (void)score(several_documents(), {"--logits", tensors.string()});
  EXPECT_EQ(count(read_file(tensors), "\"logits.5\""), 1U);
  expect_refusal(
      run("score", {"--input", several_documents().string(), "--output", "-", "--logits", "x.txt"}),
      2, {".npy", ".safetensors"});
}

// The text is one document; a mean over the same windows that score cuts.
TEST(Evaluate, WikitextIsTheMeanOfTheScores) {
  const fs::path folder = new_folder();
  write_file(folder / "wiki.txt", period_text(3, 50) + "\n");
  write_file(folder / "lines.jsonl", R"({"text": ")" + period_text(3, 50) + "\"}\n");
  const ProgramResult result =
      run("evaluate", {"--task", "wikitext", "--data", (folder / "wiki.txt").string(), "--output",
                       (folder / "result.json").string(), "--overlapping-eval", "5"});
  ASSERT_TRUE(result.ok()) << result.describe();
  const nlohmann::json json = nlohmann::json::parse(read_file(folder / "result.json"));
  const double sum =
      score(folder / "lines.jsonl", {"--stride", "5", "--seq-length", std::to_string(kPeriod)})
          .at(0)["sum"]
          .get<double>();
  EXPECT_EQ(json["tokens"], 50);
  EXPECT_EQ(json["words"], 50);
  EXPECT_NEAR(json["loss"].get<double>(), -sum / 49, 1e-5);
  EXPECT_NEAR(json["perplexity"].get<double>(), std::exp(-sum / 49), 1e-3);
  EXPECT_EQ(count(result.out, "adjusted_perplexity"), 1U) << result.out;
  const ProgramResult ranks =
      run("evaluate", {"--task", "wikitext", "--data", (folder / "wiki.txt").string(),
                       "--tensor-model-parallel-size", "2", "--overlapping-eval", "5", "--output",
                       (folder / "ranks.json").string()});
  ASSERT_TRUE(ranks.ok()) << ranks.describe();
  EXPECT_NEAR(nlohmann::json::parse(read_file(folder / "ranks.json"))["loss"].get<double>(),
              json["loss"].get<double>(), 1e-5);
}

TEST(Evaluate, OptionsThatDoNotBelongTogetherAreRefused) {
  expect_refusal(run("evaluate", {"--task", "glue", "--data", "x"}), 2, {"--task", "glue"});
  expect_refusal(run("evaluate", {"--task", "wikitext", "--data", "x", "--strict-lambada"}), 2,
                 {"--strict-lambada"});
  expect_refusal(run("evaluate", {"--task", "lambada", "--data", "x", "--overlapping-eval", "4"}),
                 2, {"--overlapping-eval"});
  expect_refusal(run("evaluate", {"--task", "lambada", "--data", "nowhere"}), 4, {"nowhere"});
}

}  // namespace pentatron::functional
