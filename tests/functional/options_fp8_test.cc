// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/functional/tiny_run.h"

namespace pentatron::functional {
namespace {

Options fp8(const std::string& format, const std::string& recipe) {
  return base().with("--bf16").with("--fp8-format", format).with("--fp8-recipe", recipe);
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
