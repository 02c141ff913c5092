// SPDX-License-Identifier: Apache-2.0
// Scoring, evaluation and generation of every model family, from Hugging Face folders with random
// weights in every tensor: the three must say the same, on one rank and on 2 x 2.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "pentatron/base/file.h"
#include "pentatron/base/safetensors.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/families/folder.h"
#include "pentatron/families/test_support.h"
#include "pentatron/inference/evaluate.h"
#include "pentatron/inference/generator.h"
#include "pentatron/inference/loaded_model.h"
#include "pentatron/inference/score_file.h"
#include "pentatron/inference/token_scorer.h"

namespace pentatron::inference {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kVocabulary = 97;  // of all models of the list
constexpr std::int64_t kGenerated = 12;
// Longer than the models' windows, which are 8.
constexpr const char* kText = "the small cat sat on a red mat";

// A token a character; the last id ends texts.
class CharacterTokenizer final : public tokenizers::Tokenizer {
 public:
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) text += static_cast<char>(id + ' ');
    return text;
  }
  std::int64_t vocab_size() const override { return kVocabulary; }
  std::int32_t eod() const override { return kVocabulary - 1; }
  std::int32_t pad() const override { return -1; }
  tokenizers::TokenizerDescription description() const override { return {}; }
  std::string identity_hash() const override { return "characters"; }

 protected:
  void do_encode(std::string_view text, std::vector<std::int32_t>& ids,
                 tokenizers::SpecialTokens) const override {
    for (const char c : text) ids.push_back(c - ' ');
  }
};

// From -1 to 1, another sequence for each tensor.
std::vector<float> values_of(const std::string& name, std::size_t count, float scale,
                             float centre) {
  std::uint64_t state = std::hash<std::string>{}(name) | 1U;
  std::vector<float> values(count);
  for (float& value : values) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    value = centre + scale * (static_cast<float>(state >> 40) / static_cast<float>(1U << 23) - 1);
  }
  return values;
}

void write_folder(const fs::path& folder, const Json& model) {
  write_file_atomically(folder / "config.json", model.at("config").dump());
  std::vector<std::vector<float>> values;
  std::vector<SafetensorsItem> items;
  for (const auto& [name, shape] : model.at("tensors").items()) {
    std::size_t count = 1;
    for (const auto& size : shape) count *= size.get<std::size_t>();
    const bool matrix = shape.size() > 1;
    const bool norm = !matrix && name.ends_with("weight");
    values.push_back(values_of(name, count, matrix ? 0.3F : 0.4F, norm ? 1.0F : 0.0F));
    items.push_back({name, "F32", shape.get<std::vector<std::int64_t>>(), {}});
  }
  for (std::size_t i = 0; i < items.size(); ++i)
    items[i].bytes = std::as_bytes(std::span(values[i]));
  std::string text;
  write_safetensors(items, {{"format", "pt"}}, [&text](std::span<const std::byte> bytes) {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  write_file_atomically(folder / "model.safetensors", text);
}

struct Observed {
  std::vector<double> logprobs;  // of `pentatron score`
  double perplexity = 0;         // of `pentatron evaluate`
  Tokens generated;
  Tokens likeliest;  // one at a time, by the scores' logits
};

// On all ranks of `model`; rank 0 has the files' results.
Observed observe(LoadedModel& model, const fs::path& folder) {
  const CharacterTokenizer tokenizer;
  Observed seen;
  DocumentScorer scorer(model, {});
  const bool first = model.context->rank() == 0;
  const fs::path output = folder / ("scores-" + std::to_string(model.context->size("pp")));
  (void)score_files(
      {.inputs = {(folder / "lines.jsonl").string()}, .output = output.string(), .logits = {}},
      scorer, tokenizer, model);
  if (first) {
    std::ifstream lines(output);
    std::string line;
    std::getline(lines, line);
    seen.logprobs = Json::parse(line).at("logprobs").get<std::vector<double>>();
  }
  for (const auto& [name, value] :
       evaluate_wikitext((folder / "text").string(), scorer, tokenizer, first)) {
    if (name == "perplexity") seen.perplexity = value;
  }
  const Tokens prompt = tokenizer.encode("the small");
  ModelRunner runner = model.runner();
  const GenerationOptions greedy{.sampling = {.temperature = 0.0}, .max_new_tokens = kGenerated};
  seen.generated = generate(runner, kVocabulary, prompt, greedy).tokens;
  TokenScorer logits(model.config, *model.stages, *model.context, model.policy, model.device,
                     {.logits = true});
  Tokens tokens = prompt;
  for (std::int64_t i = 0; i < kGenerated; ++i) {
    const std::vector<float> rows = logits.score({&tokens, 1}).at(0).logits;
    const auto last = rows.end() - kVocabulary;
    tokens.push_back(static_cast<std::int32_t>(std::max_element(last, rows.end()) - last));
    seen.likeliest.push_back(tokens.back());
  }
  return seen;
}

Observed observe(const fs::path& folder, std::int64_t tensor, std::int64_t pipeline) {
  Observed seen;
  comm::run_threads({.world_size = tensor * pipeline}, [&](comm::Backend& backend) {
    LoadedModel model = load_model(folder, {.precision = "fp64",
                                            .backend = &backend,
                                            .tensor_model_parallel_size = tensor,
                                            .pipeline_model_parallel_size = pipeline});
    const Observed mine = observe(model, folder);
    if (backend.rank() == 0) seen = mine;
  });
  return seen;
}

void expect_consistent(const Observed& seen) {
  ASSERT_EQ(seen.logprobs.size() + 1, std::string(kText).size());
  double sum = 0;
  for (const double logprob : seen.logprobs) sum += logprob;
  const double mean = sum / static_cast<double>(seen.logprobs.size());
  EXPECT_LT(mean, -0.5);
  EXPECT_NEAR(seen.perplexity / std::exp(-mean), 1.0, 1e-12);
  EXPECT_EQ(seen.generated, seen.likeliest);
}

TEST(EveryFamily, ScoresEvaluatesAndGeneratesTheSame) {
  std::set<std::string_view> seen;
  std::set<double> perplexities;
  const Json& models = families::test_support::reference_models();
  for (const auto& [name, model] : models.items()) {
    SCOPED_TRACE(name);
    const TempFolder folder;
    write_folder(folder.path(), model);
    write_file_atomically(folder.path() / "text", kText);
    write_file_atomically(folder.path() / "lines.jsonl", Json{{"text", kText}}.dump() + "\n");
    seen.insert(families::Folder(folder.path()).description().family->name);
    const Observed one = observe(folder.path(), 1, 1);
    expect_consistent(one);
    perplexities.insert(one.perplexity);
    const Observed four = observe(folder.path(), 2, 2);
    expect_consistent(four);
    EXPECT_EQ(four.generated, one.generated);
    for (std::size_t i = 0; i < one.logprobs.size(); ++i) {
      EXPECT_NEAR(four.logprobs.at(i), one.logprobs[i], 1e-10) << i;
    }
  }
  // Two families may have the same tensors and keys; the others are other models. None is missing.
  EXPECT_GE(perplexities.size(), families::families().size());
  for (const families::Family* family : families::families()) {
    EXPECT_TRUE(seen.contains(family->name)) << family->name << " has no model in the list";
  }
}

}  // namespace
}  // namespace pentatron::inference
