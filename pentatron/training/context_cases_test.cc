// SPDX-License-Identifier: Apache-2.0
// Faults of context parallelism that users of other trainers reported: one sample's tokens on
// several ranks, masks that leave some of them nothing. Each equals one rank.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/sequence_cut.h"
#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

struct Outcome {
  StepResult step;
  Tensors gradients;
};
using Change = std::function<void(std::vector<Batch>&)>;

struct Shares {
  std::int64_t cp = 1;
  std::int64_t dp = 1;
  std::string type = "p2p";
};

// The first step of a run, with batches changed alike on all ranks.
Outcome first_step(const Shares& shares, const Change& change, const ChangeConfig& model = {}) {
  const config::RunConfig config = tiny_config({}, [&](config::RunConfig& c) {
    c.training.precision = "fp64";
    c.parallel.world_size = shares.cp * shares.dp;
    c.parallel.context_parallel_size = shares.cp;
    c.model.cp_comm_type = {shares.type};
    if (model) model(c);
  });
  Outcome outcome;
  std::mutex mutex;
  with_engine(config, [&](Engine& engine) {
    std::vector<Batch> batches = micro_batches(engine, 0);
    if (change) change(batches);
    StepResult step = engine.forward_backward(batches);
    Tensors gradients = engine.gather_gradients();
    const std::lock_guard lock(mutex);
    outcome = {std::move(step), std::move(gradients)};
  });
  return outcome;
}

double worst(const Tensors& a, const Tensors& b) {
  double largest = 0.0;
  for (const auto& [name, t] : b) largest = std::max(largest, t.abs().max().item<double>());
  double off = 0.0;
  for (const auto& [name, t] : b) {
    const double error = a.at(name).sub(t).abs().max().item<double>();
    off = error >= 0.0 ? std::max(off, error / largest) : 1.0;  // not a number
  }
  return off;
}

void expect_as_one_rank(const Change& change, const ChangeConfig& model = {}) {
  const Outcome one = first_step({}, change, model);
  for (const char* type : {"p2p", "all_gather", "a2a"}) {
    for (const Shares& shares : {Shares{2, 1, type}, Shares{2, 2, type}}) {
      const Outcome many = first_step(shares, change, model);
      EXPECT_TRUE(many.step.finite);
      EXPECT_EQ(many.step.num_valid_tokens, one.step.num_valid_tokens) << type;
      EXPECT_NEAR(many.step.loss, one.step.loss, 1e-12 * std::abs(one.step.loss)) << type;
      EXPECT_LE(worst(many.gradients, one.gradients), 1e-12) << type << " dp " << shares.dp;
    }
  }
}

// Leaves the loss mask of every sample only where `keep` says.
Change mask(const std::function<bool(std::int64_t sample, std::int64_t token)>& keep) {
  return [keep](std::vector<Batch>& batches) {
    for (Batch& batch : batches) {
      const SequenceRows& rows = batch.text().rows();
      for (std::size_t row = 0; row < rows.token_index.size(); ++row) {
        const bool kept = keep(rows.sample_ids[row], rows.token_index[row]);
        batch.loss_mask()[static_cast<std::int64_t>(row)] = kept ? 1.0 : 0.0;
      }
    }
  };
}

// One valid token in all: neither halved nor lost.
TEST(Cases, MegatronLM_7513) {
  expect_as_one_rank(
      mask([](std::int64_t sample, std::int64_t token) { return sample == 3 && token == 5; }));
}

// Context and data ranks: no factor of either.
TEST(Cases, MegatronLM_673) { expect_as_one_rank({}); }

// All valid tokens on the first rank (the first and the last chunk of four): the other divides
// nothing by nothing.
TEST(Cases, MegatronLM_1764) {
  expect_as_one_rank(mask([](std::int64_t, std::int64_t token) {
    return token < kSequence / 4 || token >= kSequence * 3 / 4;
  }));
}

// Packed documents whose positions start again, rotated: angles are of positions, not of rows.
TEST(Cases, MegatronLM_5243) {
  expect_as_one_rank({}, [](config::RunConfig& config) {
    config.model.position_embedding_type = "rope";
    config.model.reset_position_ids = true;
    config.model.reset_attention_mask = true;
  });
}

// Labels are shifted inside documents before anything is cut: the label of a chunk's last token is
// the next chunk's first, on another rank; the last token of a document has no target, on whichever
// rank it stands.
TEST(Cases, MegatronLM_4495) {
  const SyntheticSource source;
  // The first document of sample i ends here (SyntheticSource).
  const auto ends = [](std::int64_t sample, std::int64_t token) {
    return token == 2 + sample % 10;
  };
  const std::vector<std::int64_t> samples = {0, 1, 2, 3, 6, 7, 8, 9};
  for (const std::int64_t size : {2, 4}) {
    std::map<std::pair<std::int64_t, std::int64_t>, int> rows;
    std::set<std::int64_t> ranks_with_ends;
    for (const std::int64_t sample : samples) {
      const Batch whole =
          to_batch(datasets::make_batch(source, {sample}), precision_policy("fp64"));
      for (std::int64_t rank = 0; rank < size; ++rank) {
        const Batch share = cut_batch(whole, {.size = size, .rank = rank});
        for (std::int64_t row = 0; row < share.num_tokens(); ++row) {
          const std::int64_t token = share.text().rows().token_index[static_cast<std::size_t>(row)];
          ++rows[{sample, token}];
          EXPECT_EQ(share.labels()[row].item<std::int64_t>(),
                    whole.labels()[token].item<std::int64_t>());
          EXPECT_EQ(share.loss_mask()[row].item<double>(), whole.loss_mask()[token].item<double>());
          if (!ends(sample, token)) continue;
          EXPECT_EQ(share.loss_mask()[row].item<double>(), 0.0) << sample;
          ranks_with_ends.insert(rank);
        }
      }
    }
    EXPECT_EQ(rows.size(), samples.size() * kSequence);
    for (const auto& [place, times] : rows) EXPECT_EQ(times, 1) << place.second;
    // Of four ranks the first has the samples' outermost tokens, where no document ends.
    EXPECT_EQ(ranks_with_ends.size(), size == 2 ? 2U : 3U);
  }
  expect_as_one_rank({});
  // What stands there as a label reaches no loss and no gradient, one rank or two.
  const Change leak = [&](std::vector<Batch>& batches) {
    for (Batch& batch : batches) {
      const SequenceRows& all = batch.text().rows();
      for (std::size_t row = 0; row < all.token_index.size(); ++row) {
        if (ends(all.sample_ids[row], all.token_index[row])) {
          batch.labels()[static_cast<std::int64_t>(row)] = 7;
        }
      }
    }
  };
  for (const Shares& shares : {Shares{}, Shares{2, 1, "p2p"}}) {
    const Outcome plain = first_step(shares, {}), leaking = first_step(shares, leak);
    EXPECT_EQ(plain.step.loss, leaking.step.loss);
    EXPECT_EQ(worst(leaking.gradients, plain.gradients), 0.0);
  }
}

}  // namespace
}  // namespace pentatron::training
