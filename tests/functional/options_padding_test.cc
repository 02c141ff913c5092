// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/functional/tiny_run.h"

// The padding of the vocabulary. Fails when the program ignores the option that it is named after.
namespace pentatron::functional {

// N6: the padding of the vocabulary, outside the softmax or inside as in Megatron-LM.
TEST(Options, PadVocabInSoftmax) {
  // 64 tokens in 128 rows, none likelier than another at first.
  const Options outside =
      base().with("--make-vocab-size-divisible-by", 128).with("--init-method-std", "0.001");
  const Options inside = outside.with("--pad-vocab-in-softmax");
  EXPECT_NEAR(train(outside).first_loss(), std::log(64.0), 1e-3);
  EXPECT_NEAR(train(inside).first_loss(), std::log(128.0), 1e-3);
  const auto parameters = [](const TinyRun& run) {
    const std::string label = "model parallel rank (0, 0, 0): ";
    const std::size_t at = run.program.out.find(label);
    return at == std::string::npos ? 0 : std::stoll(run.program.out.substr(at + label.size()));
  };
  EXPECT_EQ(parameters(train(inside)) - parameters(train(outside)), 64 * 16);
  // Every layout, and back.
  const std::filesystem::path folder = new_folder();
  const Options two = inside.with("--distributed-backend", "threads")
                          .with("--world-size", 2)
                          .with("--tensor-model-parallel-size", 2)
                          .with("--make-vocab-size-divisible-by", 64);
  expect_same_losses(train(saving(two, folder)), train(inside), 1e-5);
  EXPECT_EQ(saved_shapes(folder, 3).at("param/embedding.word_embeddings.weight"),
            (std::vector<std::int64_t>{128, 16}));
  const Options more = inside.with("--train-iters", 5)
                           .with("--load", folder.string())
                           .with("--override-opt_param-scheduler");
  EXPECT_EQ(train(more).losses().size(), 2U);
  // Generation on other ranks says the same; another program reads the padding as tokens.
  const auto written = [&](const char* ranks) {
    const ProgramResult result =
        call({"generate", "--load", folder.string(), "--prompt", "1 2 3", "--max-new-tokens", "5",
              "--temperature", "0", "--tensor-model-parallel-size", ranks});
    EXPECT_TRUE(result.ok()) << result.describe();
    return result.out;
  };
  EXPECT_EQ(written("1"), written("2"));
  // Another padding is another model.
  expect_refusal(try_train(more.with("--make-vocab-size-divisible-by", 192)).program, 7,
                 {"padded_vocab_size 128 in the checkpoint, 192 asked"});
  expect_refusal(try_train(more.without("--pad-vocab-in-softmax")).program, 7,
                 {"pad_vocab_in_softmax true in the checkpoint, false asked"});
}

}  // namespace pentatron::functional
