// SPDX-License-Identifier: Apache-2.0
// A training step under every schedule of the pipeline: what it does, in which order, and that its
// gradients are those of 1F1B to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "pentatron/models/registry.h"
#include "pentatron/ops/unit_events.h"
#include "pentatron/pipeline_parallel/make_schedule.h"
#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary
using pipeline_parallel::Action;
using pipeline_parallel::ActionKind;
using pipeline_parallel::ActionList;

// A stage of the registry that writes down what is run of it. Backward begins with its last unit;
// what that leaves in the queue runs when the micro-batch's weight gradients do.
class WatchedStage final : public nn::Stage {
 public:
  WatchedStage(std::unique_ptr<nn::Stage> stage, ActionList& done)
      : stage_(&add_child(std::move(stage))), done_(done) {}

  nn::Bundle forward(const nn::Bundle& input, nn::StepContext& step) override {
    done_.push_back({ActionKind::kForward, step.scope.micro_batch, step.scope.chunk});
    chunk_ = step.scope.chunk;
    queue_ = step.scope.queue;
    watch_.owner = this;
    watch_.told = step.events;
    watch_.last_unit = step.first_unit + static_cast<int>(units().size()) - 1;
    step.events = &watch_;
    return stage_->forward(input, step);
  }
  nn::BundleSpec input_spec(const Batch& batch) const override { return stage_->input_spec(batch); }
  nn::BundleSpec output_spec(const Batch& batch) const override {
    return stage_->output_spec(batch);
  }
  std::vector<nn::Unit> units() override { return stage_->units(); }

 private:
  struct Watch final : ops::UnitEventSink {
    void on_forward_begin(int unit) override { told->on_forward_begin(unit); }
    void on_forward_end(int unit) override { told->on_forward_end(unit); }
    void on_backward_begin(int unit) override {
      told->on_backward_begin(unit);
      if (unit == last_unit) owner->backward_began(unit);
    }
    void on_backward_end(int unit) override { told->on_backward_end(unit); }
    WatchedStage* owner = nullptr;
    ops::UnitEventSink* told = nullptr;
    int last_unit = 0;
  };

  void backward_began(int unit) {
    const Action backward{ActionKind::kBackward, backwards_++, chunk_};
    done_.push_back(backward);
    if (!queue_->postpone()) return;
    queue_->put(
        {.unit = unit, .micro_batch = backward.micro_batch, .chunk = backward.chunk},
        [this, backward] {
          done_.push_back({ActionKind::kBackwardWeight, backward.micro_batch, backward.chunk});
        });
  }

  nn::Stage* stage_;
  ActionList& done_;
  Watch watch_;
  WeightGradQueue* queue_ = nullptr;
  int chunk_ = 0;
  int backwards_ = 0;
};

ActionList work_of(ActionList list) {
  std::erase_if(list, [](const Action& action) {
    return action.kind != ActionKind::kForward && action.kind != ActionKind::kBackward &&
           action.kind != ActionKind::kBackwardWeight;
  });
  return list;
}

// Four layers, a micro-batch a sample.
config::RunConfig config_of(std::int64_t pp, const ChangeConfig& change) {
  return tiny_config({.pp = pp}, [&](config::RunConfig& c) {
    c.model.num_layers = 4;
    c.training.micro_batch_size = 1;
    change(c);
  });
}

// What each pipeline rank did in a step.
std::vector<ActionList> executed(const config::RunConfig& config) {
  const auto pp = static_cast<std::size_t>(config.parallel.pipeline_model_parallel_size);
  std::vector<ActionList> done(pp);
  with_engine(
      config, [](Engine& engine) { (void)engine.forward_backward(micro_batches(engine, 0)); },
      [&](comm::ParallelContext& context, const parallel_layers::LeafContext& leaf,
          const config::StagePlan& plan) {
        return std::make_unique<WatchedStage>(
            models::make_stage(models::model_kind(config.model), config.model, leaf, plan),
            done[static_cast<std::size_t>(context.coordinate("pp"))]);
      });
  return done;
}

std::vector<ActionList> planned(const config::RunConfig& config) {
  std::vector<ActionList> lists = pipeline_parallel::make_schedule(
      pipeline_parallel::schedule_choice(config.model, config.parallel),
      {.num_ranks = static_cast<int>(config.parallel.pipeline_model_parallel_size),
       .num_micro_batches =
           static_cast<int>(config.training.global_batch_size / config.training.micro_batch_size),
       .num_chunks = static_cast<int>(config::num_pipeline_chunks(config.model, config.parallel))});
  for (ActionList& list : lists) list = work_of(std::move(list));
  return lists;
}

// zb-auto with little memory: with enough, and equal costs, it finds nothing better than zb-h1.
ChangeConfig schedule(const char* name) {
  return [name](config::RunConfig& c) {
    c.parallel.pipeline_schedule = name;
    if (c.parallel.pipeline_schedule == "zb-auto") c.parallel.pipeline_schedule_max_in_flight = 1;
  };
}

TEST(Schedules, TheStepDoesWhatIsPlanned) {
  std::vector<std::vector<ActionList>> all;
  for (const char* name : {"1f1b", "gpipe", "zb-h1", "zb-auto"}) {
    for (const std::int64_t pp : {2, 4}) {
      const config::RunConfig config = config_of(pp, schedule(name));
      all.push_back(executed(config));
      EXPECT_EQ(all.back(), planned(config)) << name << " on " << pp;
      EXPECT_EQ(std::count(all.begin(), all.end(), all.back()), 1) << "no two are alike";
    }
  }
  const config::RunConfig config = config_of(2, [](config::RunConfig& c) {
    c.parallel.num_virtual_stages_per_pipeline_rank = 2;
    c.parallel.pipeline_schedule = "gpipe";
  });
  EXPECT_EQ(executed(config), planned(config));
}

// Micro-batches whose weight gradients are still to come, at most.
int max_kept(const ActionList& list) {
  int kept = 0;
  int max = 0;
  for (const Action& action : list) {
    if (action.kind == ActionKind::kForward) max = std::max(max, ++kept);
    if (action.kind == ActionKind::kBackwardWeight) --kept;
  }
  return max;
}

TEST(Schedules, TheLimitOnActivations) {
  for (const int limit : {0, 1, 2, 7}) {
    const auto lists = executed(config_of(4, [&](config::RunConfig& c) {
      c.parallel.pipeline_schedule = "zb-auto";
      c.parallel.pipeline_schedule_max_in_flight = limit;
      c.parallel.pipeline_schedule_costs = {"1", "1.5", "0.7", "0"};
    }));
    // The last rank postpones what it may; without the option as much as the first keeps in 1F1B.
    EXPECT_EQ(max_kept(lists.back()), limit == 0 ? 4 : limit);
    for (const ActionList& list : lists) EXPECT_LE(max_kept(list), limit == 0 ? 4 : limit);
  }
}

TEST(Schedules, TheCosts) {
  const auto with = [](std::vector<std::string> costs) {
    return config_of(4, [&](config::RunConfig& c) {
      c.parallel.pipeline_schedule = "zb-auto";
      c.parallel.pipeline_schedule_max_in_flight = 6;
      c.parallel.pipeline_schedule_costs = costs;
    });
  };
  const auto alike = executed(with({}));
  EXPECT_EQ(executed(with({"2", "2", "2", "0"})), alike);
  const config::RunConfig slow_messages = with({"1", "1", "0.5", "2"});
  EXPECT_EQ(executed(slow_messages), planned(slow_messages));
  EXPECT_NE(planned(slow_messages), alike);
}

Tensors gradients_of(const config::RunConfig& config) {
  Tensors gradients;
  std::mutex mutex;
  with_engine(config, [&](Engine& engine) {
    (void)engine.forward_backward(micro_batches(engine, 0));
    Tensors mine = engine.gather_gradients();
    const std::lock_guard lock(mutex);
    gradients = std::move(mine);
  });
  return gradients;
}

// Embedding and output layer are tied over the ends of the pipeline.
TEST(Schedules, GradientsHaveTheBitsOf1F1B) {
  struct Case {
    std::int64_t pp;
    std::int64_t micro_batch_size;
    const char* layout;
  };
  for (const Case& run : {Case{2, 1, ""}, Case{4, 1, ""}, Case{4, 4, ""}, Case{2, 1, "Ettt|tL"},
                          Case{4, 2, "E|tt|tt|L"}}) {
    const auto config = [&](const char* name) {
      return config_of(run.pp, [&](config::RunConfig& c) {
        c.training.micro_batch_size = run.micro_batch_size;
        c.parallel.pipeline_model_parallel_layout = run.layout;
        c.parallel.pipeline_schedule = name;
      });
    };
    const Tensors expected = gradients_of(config("1f1b"));
    for (const char* name : {"gpipe", "zb-h1", "zb-auto"}) {
      EXPECT_EQ(first_difference(gradients_of(config(name)), expected), "")
          << name << " on " << run.pp << " " << run.layout;
    }
  }
}

}  // namespace
}  // namespace pentatron::training
