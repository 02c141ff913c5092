// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/functional/tiny_run.h"

namespace pentatron::functional {
namespace {

Options fp8(const std::string& format, const std::string& recipe) {
  return base().with("--bf16").with("--fp8-format", format).with("--fp8-recipe", recipe);
}

// What delayed scaling remembers is the only state that a checkpoint may have or lack: a run goes
// from bf16 to fp8, back and to other scales, and says so; weights and their state are strict.
TEST(Cases, MegatronLM_900) {
  const Options wide = base().with("--bf16").with("--train-iters", 4);
  const Options narrow = fp8("hybrid", "delayed")
                             .with("--train-iters", 4)
                             .with("--fp8-amax-history-len", 4)
                             .with("--fp8-amax-compute-algo", "max");
  using std::filesystem::path;
  const auto begun = [](const Options& options) {
    const path folder = new_folder();
    (void)train(saving(options, folder).with("--exit-interval", 2));
    return folder;
  };
  const auto gone_on = [](const Options& options, const path& from) {
    const TinyRun run = train(options.with("--load", from.string()));
    EXPECT_EQ(run.series("train", "iteration"), (std::vector<double>{3, 4}));
    return run;
  };
  const path from_wide = begun(wide), from_narrow = begun(narrow);
  ASSERT_TRUE(std::ranges::any_of(saved_shapes(from_narrow, 2), [](const auto& tensor) {
    return tensor.first.ends_with(".fp8_history");
  }));
  const std::string kSaid = "was computed otherwise: ";
  std::set<double> different;
  for (const auto& [options, from] : std::vector<std::pair<Options, path>>{
           {narrow, from_wide},
           {wide, from_narrow},
           {narrow.with("--fp8-amax-history-len", 7), from_narrow},
           {fp8("e4m3", "tensorwise").with("--train-iters", 4), from_narrow}}) {
    const TinyRun run = gone_on(options, from);
    EXPECT_EQ(count(run.program.err, kSaid), 1U) << run.program.describe();
    different.insert(run.last_loss());
  }
  EXPECT_EQ(different.size(), 4U);
  const TinyRun same = gone_on(narrow, from_narrow);
  EXPECT_EQ(count(same.program.err, kSaid), 0U) << same.program.describe();
  EXPECT_EQ(same.last_loss(), train(narrow).last_loss());
  expect_refusal(
      try_train(wide.with("--num-layers", 3).with("--load", from_narrow.string())).program, 7,
      {"num_layers 2 in the checkpoint, 3 asked"});
}

}  // namespace

// Each option gives other losses, all near those of bf16.
TEST(Options, Fp8) {
  const Options hybrid = fp8("hybrid", "tensorwise");
  const Options edges = hybrid.with("--num-layers", 3).with("--first-last-layers-bf16");
  const std::vector<TinyRun> runs =
      train_all({base().with("--bf16"), hybrid, fp8("e4m3", "tensorwise"), fp8("hybrid", "delayed"),
                 fp8("e4m3", "blockwise"), fp8("hybrid", "blockwise"),
                 fp8("e4m3", "blockwise").with("--fp8-output-proj"), hybrid.with("--no-fp8-wgrad"),
                 hybrid.with("--fp8-output-proj")});
  std::set<std::vector<double>> different;
  for (const TinyRun& run : runs) {
    different.insert(run.losses());
    EXPECT_NEAR(run.last_loss(), runs[0].last_loss(), 0.02 * runs[0].last_loss());
  }
  EXPECT_EQ(different.size(), runs.size());
  // Layers that stay in bf16: none, both ends, one end each, all.
  const Options three = hybrid.with("--num-layers", 3);
  const std::vector<TinyRun> layers = train_all(
      {three, edges, edges.with("--num-layers-at-start-in-bf16", 0),
       edges.with("--num-layers-at-end-in-bf16", 0), edges.with("--num-layers-at-end-in-bf16", 2),
       base().with("--bf16").with("--num-layers", 3)});
  different.clear();
  for (const TinyRun& run : layers) different.insert(run.losses());
  EXPECT_EQ(different.size(), layers.size() - 1);
  EXPECT_EQ(layers[4].losses(), layers[5].losses());
}

TEST(Options, Fp8RefusesWhatItCannotMultiply) {
  const Options options = fp8("hybrid", "tensorwise");
  expect_refusal(try_train(options.without("--bf16")).program, 2, {"--fp8-format", "--bf16"});
  expect_refusal(try_train(options.with("--ffn-hidden-size", 40)).program, 2,
                 {"--fp8-format", "--ffn-hidden-size", "40"});
  expect_refusal(try_train(fp8("e4m3", "blockwise").with("--ffn-hidden-size", 40)).program, 2,
                 {"--fp8-format", "--ffn-hidden-size", "40"});
  expect_refusal(try_train(options.with("--fp8-output-proj")
                               .with("--vocab-size", 61)
                               .with("--make-vocab-size-divisible-by", 1))
                     .program,
                 2, {"--fp8-output-proj", "62", "--make-vocab-size-divisible-by"});
  expect_refusal(try_train(fp8("e4m3", "mxfp8")).program, 2, {"--fp8-recipe", "mxfp8"});
}

TEST(Options, OutputLogitDtype) {
  const Options bf16 = base().with("--bf16");
  const std::vector<TinyRun> runs =
      train_all({bf16, bf16.with("--output-logit-dtype", "bf16"),
                 bf16.with("--output-logit-dtype", "fp32"), base().with("--fp64")});
  EXPECT_EQ(runs[1].losses(), runs[0].losses());
  EXPECT_NE(runs[2].losses(), runs[0].losses());
  EXPECT_NEAR(runs[2].first_loss(), runs[3].first_loss(), 1e-2 * runs[3].first_loss());
}

// The scales' histories are part of a checkpoint.
TEST(Resume, DelayedScalesGoOnBitForBit) {
  const Options options = fp8("hybrid", "delayed")
                              .with("--fp8-amax-history-len", 3)
                              .with("--fp8-amax-compute-algo", "max");
  const std::filesystem::path whole = new_folder(), parts = new_folder();
  const Options six = options.with("--train-iters", 6);
  const TinyRun at_once = train(saving(six, whole));
  (void)train(saving(six.with("--exit-interval", 3), parts, 3));
  const TinyRun second = train(resuming(six, parts));
  const std::vector<double> all = at_once.losses();
  EXPECT_EQ(second.losses(), std::vector<double>(all.begin() + 3, all.end()));
}

}  // namespace pentatron::functional
