// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "pentatron/families/presets.h"
#include "pentatron/families/registry.h"
#include "tests/functional/tiny_run.h"

// recipes/: one option file a family. Each is sound as it stands, and trains when it is made small.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;

fs::path source(const std::string& below) {
  const char* tree = std::getenv("PENTATRON_SOURCE_DIR");
  EXPECT_NE(tree, nullptr);
  return fs::path(tree == nullptr ? "." : tree) / below;
}

fs::path recipe_of(const families::Family& family) {
  return source("recipes") / (std::string(family.name) + ".yaml");
}

// The family's preset that the recipe begins with.
std::string preset_of(const families::Family& family) {
  const std::string text = read_file(recipe_of(family));
  for (const families::Preset& preset : families::presets_of(family.name)) {
    if (count(text, "model-preset: " + std::string(preset.name) + "\n") == 1) {
      return std::string(preset.name);
    }
  }
  ADD_FAILURE() << family.name << ": its recipe names none of its presets";
  return {};
}

// Layers, widths, vocabulary, steps and files are small ones; all else is the recipe's.
Options made_small(const families::Family& family) {
  const config::ModelConfig model = families::preset_model(preset_of(family)).model;
  Options options = base()
                        .with("--yaml-cfg", recipe_of(family).string())
                        .with("--set", "bf16=false")
                        .with("--init-method-std", "0.1")
                        .with("--hidden-size", 32)
                        .with("--num-attention-heads", 4)
                        .with("--kv-channels", 8)
                        .with("--ffn-hidden-size", 48)
                        .with("--train-iters", 2)
                        .with("--lr-warmup-iters", 0)
                        .with("--min-lr", "0.0")
                        .with("--distributed-backend", "threads");
  if (model.group_query_attention && model.num_query_groups > 1) {
    options = options.with("--num-query-groups", 2);
  }
  return options;
}

}  // namespace

TEST(Recipes, EveryFamilyHasOneThatItsPageNames) {
  std::size_t files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(source("recipes"))) {
    files += entry.path().extension() == ".yaml" ? 1 : 0;
  }
  EXPECT_EQ(files, families::families().size());
  for (const families::Family* family : families::families()) {
    SCOPED_TRACE(std::string(family->name));
    const ProgramResult result = call({"pretrain_gpt", "--check-options", "--yaml-cfg",
                                       recipe_of(*family).string(), "--save", "run"});
    // The options are fine; corpus and weights are the reader's own.
    EXPECT_TRUE(result.ok() || result.exit_code == 4) << result.describe();
    EXPECT_EQ(count(result.out, "the options fit together"), 1U) << result.out;
    EXPECT_EQ(count(result.out, "(preset: " + preset_of(*family) + ")") > 5, true) << result.out;
    const std::string name(family->name);
    const std::string page = read_file(source("pentatron/families") / name / "README.md");
    EXPECT_EQ(count(page, "recipes/" + name + ".yaml"), 1U);
  }
}

TEST(Recipes, TrainWhenMadeSmall) {
  std::vector<Options> all;
  for (const families::Family* family : families::families()) {
    const Options small = made_small(*family);
    all.push_back(small.with("--world-size", 1));
    all.push_back(small.with("--world-size", 2).with("--tensor-model-parallel-size", 2));
  }
  const std::vector<TinyRun> runs = train_all(all);
  std::size_t next = 0;
  for (const families::Family* family : families::families()) {
    SCOPED_TRACE(std::string(family->name));
    const TinyRun& alone = runs[next];
    ASSERT_EQ(alone.losses().size(), 2U);
    // Two steps over random tokens teach nothing: the second loss shows that the first step was
    // one.
    EXPECT_TRUE(std::isfinite(alone.last_loss()));
    EXPECT_NE(alone.last_loss(), alone.first_loss());
    expect_same_losses(runs[next + 1], alone, 1e-5);
    next += 2;
  }
}

}  // namespace pentatron::functional
