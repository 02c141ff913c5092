// SPDX-License-Identifier: Apache-2.0
// --cuda-graph-impl local: which memory a micro-batch takes, and layers that are replayed against
// layers that run. On the CPU a replay runs the work again into the recorded memory, so that what
// is tested here is everything but the recording itself (training_gpu_test RecordedLayers.*).
#include "pentatron/training/recorded_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "pentatron/pipeline_parallel/schedule.h"
#include "pentatron/training/llama_test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

using pipeline_parallel::ActionKind;
using pipeline_parallel::ActionList;
using pipeline_parallel::ScheduleShape;

// No two micro-batches in flight in one slot, and the first alone in slot 0.
void expect_sound(const ActionList& list, int num_chunks, const LayerSlots& slots) {
  std::map<std::pair<int, int>, int> taken;  // by chunk and slot: the micro-batch
  for (const pipeline_parallel::Action& action : list) {
    if (action.kind != ActionKind::kForward && action.kind != ActionKind::kBackward) continue;
    const int slot = slots.of.at({action.chunk, action.micro_batch});
    EXPECT_EQ(slot == 0, action.micro_batch == 0);
    EXPECT_LT(slot, slots.count.at(static_cast<std::size_t>(action.chunk)));
    const std::pair key{action.chunk, slot};
    if (action.kind == ActionKind::kForward) {
      EXPECT_FALSE(taken.contains(key)) << "micro-batch " << action.micro_batch;
      taken[key] = action.micro_batch;
    } else {
      EXPECT_EQ(taken.at(key), action.micro_batch);
      taken.erase(key);
    }
  }
  EXPECT_TRUE(taken.empty());
  EXPECT_EQ(std::ssize(slots.count), num_chunks);
}

TEST(LayerSlots, NoTwoInFlightShareOne) {
  for (const int ranks : {1, 2, 4}) {
    for (const int micro_batches : {1, 4, 8}) {
      const ScheduleShape shape{.num_ranks = ranks, .num_micro_batches = micro_batches};
      for (const ActionList& list : pipeline_parallel::one_forward_one_backward(shape)) {
        const LayerSlots slots = layer_slots(list, 1);
        expect_sound(list, 1, slots);
        EXPECT_LE(slots.count[0], std::min(ranks, micro_batches) + 1);
      }
      for (const ActionList& list : pipeline_parallel::gpipe(shape)) {
        expect_sound(list, 1, layer_slots(list, 1));
      }
      const ScheduleShape chunks{
          .num_ranks = ranks, .num_micro_batches = micro_batches, .num_chunks = 2};
      if (micro_batches % ranks != 0) continue;
      for (const ActionList& list :
           pipeline_parallel::interleaved_one_forward_one_backward(chunks)) {
        expect_sound(list, 2, layer_slots(list, 2));
      }
    }
  }
}

struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<double> evaluations;
  std::map<std::string, Tensor> gradients;
  std::map<std::string, Tensor> weights;
  std::int64_t recorded = 0;
};

constexpr int kSteps = 6;
constexpr int kWarmUp = 2;

Trained train(const Layout& layout, bool local, const ChangeConfig& change) {
  const config::RunConfig config = tiny_config(layout, [&](config::RunConfig& c) {
    c.model.num_layers = 4;
    c.training.micro_batch_size = 1;
    change(c);
    if (!local) return;
    c.training.cuda_graph_impl = "local";
    c.training.cuda_graph_warmup_steps = kWarmUp;
  });
  Trained result;
  with_engine(config, [&](Engine& engine) {
    Trained mine;
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_EQ(engine.num_recorded_shapes() > 0, local && step > kWarmUp) << step;
      const StepResult done = engine.train_step(
          whole_samples(engine, step), {.lr = 0.01 / (1 + step), .weight_decay = kWeightDecay});
      mine.losses.push_back(done.loss);
      mine.norms.push_back(done.grad_norm);
      mine.evaluations.push_back(engine.evaluate(whole_samples(engine, 100)).loss_sum);
    }
    (void)engine.forward_backward(whole_samples(engine, kSteps));
    mine.gradients = engine.gather_gradients();
    mine.weights = engine.gather_parameters();
    mine.recorded = engine.num_recorded_shapes();
    if (engine.context().rank() == 0) result = std::move(mine);
  });
  return result;
}

void expect_same_bits(const Layout& layout, const ChangeConfig& change) {
  const Trained plain = train(layout, false, change);
  const Trained recorded = train(layout, true, change);
  EXPECT_EQ(plain.recorded, 0);
  EXPECT_GT(recorded.recorded, 0);
  EXPECT_EQ(recorded.losses, plain.losses);
  EXPECT_EQ(recorded.norms, plain.norms);
  EXPECT_EQ(recorded.evaluations, plain.evaluations);
  for (const auto& [name, values] : plain.gradients) {
    EXPECT_TRUE(recorded.gradients.at(name).equal(values)) << "gradient of " << name;
  }
  for (const auto& [name, values] : plain.weights) {
    EXPECT_TRUE(recorded.weights.at(name).equal(values)) << name;
  }
  EXPECT_NE(plain.losses[3], plain.losses[4]) << "one batch again and again";
}

void llama(config::RunConfig& c) {
  make_llama(c.model);
  c.model.hidden_dropout = 0;
  c.model.attention_dropout = 0;
}

TEST(RecordedLayers, ChangeNoBit) {
  const auto nothing = [](config::RunConfig&) {};
  const auto sequence = [](config::RunConfig& c) { c.parallel.sequence_parallel = true; };
  const auto stages = [](config::RunConfig& c) {
    c.parallel.num_virtual_stages_per_pipeline_rank = 2;
  };
  const auto gpipe = [](config::RunConfig& c) { c.parallel.pipeline_schedule = "gpipe"; };
  const auto again = [](config::RunConfig& c) {
    llama(c);
    c.model.recompute_granularity = "selective";
    c.model.recompute_modules = {"core_attn", "mlp", "layernorm"};
  };
  const auto logits = [](config::RunConfig& c) { c.logging.log_max_attention_logit = true; };
  const auto means = [](config::RunConfig& c) { c.training.loss_mean = "micro-batches"; };
  struct Case {
    const char* name;
    Layout layout;
    ChangeConfig change;
  };
  for (const Case& test :
       {Case{"one rank, dropout", {}, nothing}, Case{"llama", {}, llama},
        Case{"tensor", {.tp = 2}, nothing}, Case{"sequence", {.tp = 2}, sequence},
        Case{"pipeline", {.pp = 2}, nothing}, Case{"long pipeline", {.pp = 4}, llama},
        Case{"several stages a rank", {.pp = 2}, stages}, Case{"gpipe", {.pp = 2}, gpipe},
        Case{"data", {.dp = 2}, nothing},
        Case{"sharded optimizer", {.pp = 2, .dp = 2, .sharded = true}, llama},
        Case{"recompute of parts", {.pp = 2}, again}, Case{"largest logit", {.pp = 2}, logits},
        Case{"means of micro-batches", {.pp = 2}, means}}) {
    SCOPED_TRACE(test.name);
    expect_same_bits(test.layout, test.change);
  }
}

// A step of another shape, or of fewer micro-batches, in between.
TEST(RecordedLayers, OtherStepsRunAsEver) {
  const auto losses = [](bool local) {
    std::vector<double> result;
    const config::RunConfig config = tiny_config({}, [&](config::RunConfig& c) {
      llama(c);
      if (!local) return;
      c.training.cuda_graph_impl = "local";
      c.training.cuda_graph_warmup_steps = 1;
    });
    with_engine(config, [&](Engine& engine) {
      for (int step = 0; step < 6; ++step) {
        std::vector<Batch> batches =
            step == 3 ? micro_batches(engine, step) : whole_samples(engine, step);
        if (step == 4) batches.pop_back();
        result.push_back(engine.train_step(batches, 0.01, kWeightDecay).loss);
      }
    });
    return result;
  };
  EXPECT_EQ(losses(true), losses(false));
}

}  // namespace
}  // namespace pentatron::training
