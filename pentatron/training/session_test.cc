// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/training/trainer_test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary
namespace fs = std::filesystem;

// On threads, without what the ranks print.
void on_threads(std::int64_t world, const std::function<void(comm::Backend&)>& body) {
  testing::internal::CaptureStdout();
  try {
    comm::run_threads({.world_size = world, .timeout = std::chrono::milliseconds(60'000)}, body);
  } catch (...) {
    (void)testing::internal::GetCapturedStdout();
    throw;
  }
  (void)testing::internal::GetCapturedStdout();
}

// As the trainer goes through its run: evaluations every three iterations, a save at the end.
void train_until(Session& session, std::int64_t iteration) {
  while (session.iteration() < iteration) {
    (void)session.step();
    if (session.iteration() % 3 == 0) (void)session.evaluate();
  }
  session.save();
}

struct World {
  const char* name;
  std::int64_t size = 1;
  std::int64_t tp = 1;
  bool sharded = false;
};

class SessionOnRanks : public testing::TestWithParam<World> {
 protected:
  [[nodiscard]] config::RunConfig config(const RunFolder& folder, const fs::path& save,
                                         bool load = false) const {
    return folder.config([&](config::RunConfig& c) {
      c.parallel.world_size = GetParam().size;
      c.parallel.tensor_model_parallel_size = GetParam().tp;
      c.parallel.use_distributed_optimizer = GetParam().sharded;
      c.parallel.distributed_backend = "threads";
      c.optimizer.lr_decay_style = "cosine";
      c.training.metrics_file.clear();
      saving(save, load)(c);
    });
  }
};

TEST_P(SessionOnRanks, EqualsTheTrainerBitForBit) {
  const RunFolder folder;
  const fs::path of_trainer = folder.checkpoints() / "trainer";
  const fs::path of_session = folder.checkpoints() / "session";
  (void)run(config(folder, of_trainer));
  on_threads(GetParam().size, [&](comm::Backend& backend) {
    Session session(config(folder, of_session), backend);
    EXPECT_FALSE(session.resumed());
    train_until(session, 6);
    EXPECT_TRUE(session.done());
    expect_error(ErrorKind::kConfig, "--train-iters", [&] { (void)session.step(); });
  });
  EXPECT_EQ(state_hash(of_session, 6), state_hash(of_trainer, 6));
}

TEST_P(SessionOnRanks, ResumesItsOwnAndTheTrainersRuns) {
  const RunFolder folder;
  const fs::path whole = folder.checkpoints() / "whole";
  (void)run(config(folder, whole));
  const std::string expected = state_hash(whole, 6);
  const fs::path own = folder.checkpoints() / "own";
  for (const std::int64_t end : {3, 6}) {
    on_threads(GetParam().size, [&](comm::Backend& backend) {
      Session session(config(folder, own, /*load=*/true), backend);
      EXPECT_EQ(session.resumed(), end == 6);
      EXPECT_EQ(session.iteration(), end - 3);
      train_until(session, end);
    });
  }
  EXPECT_EQ(state_hash(own, 6), expected);
  // The trainer goes on with what a Session saved, and the other way round.
  const fs::path mixed = folder.checkpoints() / "mixed";
  on_threads(GetParam().size, [&](comm::Backend& backend) {
    Session session(config(folder, mixed), backend);
    train_until(session, 3);
  });
  (void)run(config(folder, mixed, /*load=*/true));
  EXPECT_EQ(state_hash(mixed, 6), expected);
  const fs::path other = folder.checkpoints() / "other";
  config::RunConfig half = config(folder, other);
  half.training.exit_interval = 3;
  (void)run(half);
  on_threads(GetParam().size, [&](comm::Backend& backend) {
    Session session(config(folder, other, /*load=*/true), backend);
    EXPECT_EQ(session.iteration(), 3);
    train_until(session, 6);
  });
  EXPECT_EQ(state_hash(other, 6), expected);
}

TEST_P(SessionOnRanks, EvaluatesAndGeneratesAlikeOnAllRanks) {
  const RunFolder folder;
  on_threads(GetParam().size, [&](comm::Backend& backend) {
    Session session(config(folder, folder.checkpoints()), backend);
    (void)session.step();
    const std::vector<SessionEvaluation> sets = session.evaluate();
    ASSERT_EQ(sets.size(), 1U);
    EXPECT_NEAR(sets[0].loss, std::log(kIds + 1), 0.5);
    EXPECT_EQ(sets[0].num_valid_tokens, 2.0 * 4 * kSequence);
    const std::string text =
        session.generate_text("3 4 5", {.sampling = {.temperature = 0}, .max_new_tokens = 4});
    const std::vector<std::int32_t> ids =
        session.generate({3, 4, 5}, {.sampling = {.temperature = 0}, .max_new_tokens = 4}).tokens;
    EXPECT_EQ(ids.size(), 4U);
    for (const std::string& peer : comm::all_gather_bytes(session.context().world(), text)) {
      EXPECT_EQ(peer, text);
    }
    const double loss = session.step().loss;  // generation leaves the engine ready
    EXPECT_TRUE(std::isfinite(loss));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, SessionOnRanks,
                         testing::Values(World{"one"}, World{"tensor", 2, 2},
                                         World{"data", 2, 1, true}),
                         [](const auto& info) { return std::string(info.param.name); });

config::RunConfig own_config(const fs::path& save, bool load) {
  config::RunConfig config;
  config.model.num_layers = 1;
  config.model.hidden_size = 16;
  config.model.num_attention_heads = 2;
  config.model.seq_length = config.model.max_position_embeddings = kSequence;
  config.training.micro_batch_size = 2;
  config.training.global_batch_size = 4;
  config.training.train_iters = 4;
  config.training.eval_iters = 1;
  config.optimizer.lr = 0.01;
  config.checkpoint.save = save.string();
  if (load) config.checkpoint.load = save.string();
  return config;
}

class OtherSource final : public datasets::SampleSource {
 public:
  [[nodiscard]] std::int64_t num_samples() const override { return source_.num_samples(); }
  [[nodiscard]] std::int64_t length(std::int64_t i) const override { return source_.length(i); }
  [[nodiscard]] datasets::Sample sample(std::int64_t i) const override {
    return source_.sample(i + 1);
  }
  [[nodiscard]] std::string identity() const override { return "shifted"; }

 private:
  SyntheticSource source_;
};

TEST(Session, ResumesOwnSamplesAndRefusesOthers) {
  const TempFolder folder;
  const SyntheticSource samples;
  const SessionOptions own{.train = &samples, .validation = &samples, .vocab_size = kVocabulary};
  const auto train = [&](const fs::path& save, bool load, std::int64_t until) {
    on_threads(1, [&](comm::Backend& backend) {
      Session session(own_config(save, load), backend, own);
      EXPECT_EQ(session.tokenizer(), nullptr);
      train_until(session, until);
    });
  };
  train(folder.path() / "whole", false, 4);
  train(folder.path() / "parts", true, 2);
  train(folder.path() / "parts", true, 4);
  EXPECT_EQ(state_hash(folder.path() / "parts", 4), state_hash(folder.path() / "whole", 4));
  const OtherSource shifted;
  on_threads(1, [&](comm::Backend& backend) {
    expect_error(ErrorKind::kCheckpoint, "other data", [&] {
      Session session(own_config(folder.path() / "parts", true), backend,
                      {.train = &shifted, .vocab_size = kVocabulary});
    });
  });
  on_threads(1, [&](comm::Backend& backend) {
    expect_error(ErrorKind::kConfig, "vocab_size", [&] {
      Session session(own_config(folder.path() / "none", false), backend, {.train = &samples});
    });
  });
}

TEST(Session, RefusesToSaveWhatItDidNotCount) {
  const TempFolder folder;
  const SyntheticSource samples;
  on_threads(1, [&](comm::Backend& backend) {
    Session session(own_config(folder.path(), false), backend,
                    {.train = &samples, .vocab_size = kVocabulary});
    (void)session.step();
    expect_error(ErrorKind::kConfig, "evaluate on", [&] { (void)session.evaluate(); });
    expect_error(ErrorKind::kConfig, "tokenizer", [&] { (void)session.generate_text("a"); });
    (void)session.engine().train_step(micro_batches(session.engine(), 1), 0.01, 0.0);
    expect_error(ErrorKind::kConfig, "made 2 updates, this Session counted 1",
                 [&] { session.save(); });
    EXPECT_TRUE(checkpoint::list_iterations(folder.path()).empty());
  });
  on_threads(1, [&](comm::Backend& backend) {
    Session unsaved(own_config("", false), backend, {.train = &samples, .vocab_size = kVocabulary});
    expect_error(ErrorKind::kConfig, "checkpoint.save", [&] { unsaved.save(); });
  });
}

}  // namespace
}  // namespace pentatron::training
