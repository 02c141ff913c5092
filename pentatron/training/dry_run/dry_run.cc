// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/dry_run/dry_run.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/json.h"
#include "pentatron/base/log.h"
#include "pentatron/config/batch_schedule.h"
#include "pentatron/config/choices.h"
#include "pentatron/config/validate.h"
#include "pentatron/pipeline_parallel/compare_schedules.h"
#include "pentatron/training/data.h"
#include "pentatron/training/dry_run/activations.h"
#include "pentatron/training/dry_run/report.h"
#include "pentatron/training/dry_run/sizes.h"
#include "pentatron/training/log_format.h"

namespace pentatron::training::dry_run {
namespace {

// Of one step; the last of a batch-size schedule, which is the largest as a rule.
std::int64_t num_micro_batches(const config::RunConfig& config) {
  return config::running_batch_size(config) /
         (config.training.micro_batch_size * config.parallel.data_parallel_size);
}

pipeline_parallel::PlayedSchedule play_schedule(const RunPlan& run) {
  constexpr std::int64_t kMaxForwards = 1 << 20;
  const config::ParallelConfig& parallel = run.config.parallel;
  const std::int64_t count = num_micro_batches(run.config);
  PENTATRON_CHECK(count <= kMaxForwards / static_cast<std::int64_t>(run.stages.size()),
                  kUnsupported,
                  "--dry-run: {} micro-batches on {} stages are too many to play: at most {} "
                  "forwards in a step",
                  count, run.stages.size(), kMaxForwards);
  pipeline_parallel::PlayedSchedule played = pipeline_parallel::play(
      pipeline_parallel::schedule_choice(run.config.model, parallel),
      {.num_ranks = static_cast<int>(parallel.pipeline_model_parallel_size),
       .num_micro_batches = static_cast<int>(count),
       .num_chunks = static_cast<int>(config::num_pipeline_chunks(run.config.model, parallel)),
       .group_size = static_cast<int>(parallel.microbatch_group_size_per_vp_stage)});
  PENTATRON_CHECK(played.sound(), kConfig, "--pipeline-schedule {}: {}", played.choice.name,
                  pipeline_parallel::verdict(played));
  return played;
}

SchedulePlan schedule_plan(const pipeline_parallel::PlayedSchedule& played) {
  SchedulePlan plan{.name = played.choice.name,
                    .num_ranks = played.shape.num_ranks,
                    .num_chunks = played.shape.num_chunks,
                    .num_micro_batches = played.shape.num_micro_batches,
                    .bubble_share = played.result.bubble_share,
                    .waiting_share = {},
                    .peak_in_flight = played.result.peak_in_flight,
                    .peak_activations = played.result.peak_activations};
  for (const double busy : played.result.busy_time) {
    plan.waiting_share.push_back(1 - busy / played.result.total_time);
  }
  return plan;
}

std::string stages_text(const std::vector<config::StagePlan>& stages) {
  std::string text;
  const auto add = [&text](const std::string& part) {
    if (!text.empty()) text += ", ";
    text += part;
  };
  for (const config::StagePlan& stage : stages) {
    if (stage.embedding) add("embedding");
    if (stage.num_layers() == 1) add(fmt::format("layer {}", stage.first_layer));
    if (stage.num_layers() > 1) {
      add(fmt::format("layers {}-{}", stage.first_layer, stage.end_layer - 1));
    }
    if (stage.loss) add("loss");
  }
  return text;
}

StageActivations activations_of(const ModelPlace& place,
                                const pipeline_parallel::ActionList& list) {
  std::vector<StageActivations> chunks;
  for (std::size_t chunk = 0; chunk < place.stages().size(); ++chunk) {
    chunks.push_back(stage_activations(place.run().config, place.stages()[chunk],
                                       place.plans()[chunk], place.run().specs));
  }
  return peak_activations(list, chunks);
}

// A byte an element and order of the linear maps that are made in fp8.
std::int64_t fp8_weights(const ModelPlace& place) {
  constexpr std::int64_t kOrders = 2;
  const config::ModelConfig& model = place.run().config.model;
  std::int64_t bytes = 0;
  const auto add = [&](const nn::ParameterPlan& plan, const std::string& name) {
    const nn::PlannedParameter* weight = plan.find(name);
    if (weight == nullptr) return;
    bytes += kOrders * product({weight->spec.local_shape.at(0), weight->spec.local_shape.at(1)});
  };
  for (std::size_t chunk = 0; chunk < place.stages().size(); ++chunk) {
    const config::StagePlan& stage = place.stages()[chunk];
    const nn::ParameterPlan& plan = place.plans()[chunk];
    for (int layer = stage.first_layer; layer < stage.end_layer; ++layer) {
      const ops::Recipe& recipe = place.run().specs.at(static_cast<std::size_t>(layer)).recipe;
      if (recipe.numbers != Numbers::kFp8) continue;
      const std::string prefix = "decoder.layers." + std::to_string(layer) + ".";
      for (const char* name : {"self_attention.linear_qkv", "self_attention.linear_proj",
                               "self_attention", "mlp.linear_fc1", "mlp.linear_fc2", "mlp"}) {
        add(plan, prefix + name + ".weight");
      }
    }
    if (!stage.loss || !model.fp8_output_proj) continue;
    add(plan, model.untie_embeddings_and_output_weights ? "output_layer.weight"
                                                        : "embedding.word_embeddings.weight");
  }
  return bytes;
}

RankPlan rank_plan(const ModelPlace& place, const StageActivations& activations,
                   std::int64_t rank) {
  const optimizer::TrainingStateBytes state = place.state_of(rank);
  MemoryPlan memory{.weights = state.parameters + place.frozen_weights(),
                    .gradients = state.gradients,
                    .main_weights = state.main_parameters,
                    .optimizer_state = state.moments,
                    .gathered_weights = place.gathered_weights(),
                    .unit_gradients = place.unit_gradients(),
                    .fp8_weights = fp8_weights(place),
                    .activations = activations.layers,
                    .logits = activations.logits,
                    .rebuilt = activations.rebuilt,
                    .moving = activations.moving,
                    .temporaries = activations.work};
  memory.on_host = state.on_host() + activations.on_host;
  return {.rank = rank,
          .place = place.run().grids.dense.describe(rank),
          .stages = stages_text(place.stages()),
          .num_parameters = place.num_parameters(/*owned_only=*/false),
          .memory = memory};
}

// The tokenizer's files need not be there where the options name the size.
void set_vocabulary(config::RunConfig& config) {
  if (config::tokenizer_kind(config.data) != config::TokenizerKind::kNull &&
      config.model.vocab_size > 0) {
    config::resolve_vocab(config, config.model.vocab_size);
  } else {
    static_cast<void>(make_run_tokenizer(config));
  }
}

}  // namespace

DryRun plan(const config::RunConfig& config) {
  const RunPlan run(config);
  const pipeline_parallel::PlayedSchedule played = play_schedule(run);
  DryRun result{.config = config,
                .step_flops = model_flops(config.model,
                                          static_cast<double>(config::running_batch_size(config))),
                .schedule = schedule_plan(played)};
  const comm::RankGrid& grid = run.grids.dense;
  const std::int64_t asked = config.parallel.rank;
  // Every rank of its data place, once: tensor and pipeline ranks have stages of their own, context
  // ranks other shards of the state.
  for (std::int64_t pp = 0; pp < grid.size("pp"); ++pp) {
    const pipeline_parallel::ActionList& list = played.lists.at(static_cast<std::size_t>(pp));
    for (std::int64_t tp = 0; tp < grid.size("tp"); ++tp) {
      const std::int64_t there =
          grid.with_coordinate(grid.with_coordinate(asked, "pp", pp), "tp", tp);
      const ModelPlace place(run, there);
      const StageActivations activations = activations_of(place, list);
      result.num_parameters += place.num_parameters(/*owned_only=*/true);
      result.num_frozen += place.num_frozen();
      for (std::int64_t cp = 0; cp < grid.size("cp"); ++cp) {
        const std::int64_t rank = grid.with_coordinate(there, "cp", cp);
        RankPlan plan = rank_plan(place, activations, rank);
        if (rank == asked) {
          result.asked = plan;
          result.traffic = step_traffic(place, rank, list, result.schedule.num_micro_batches);
        }
        if (plan.memory.total() > result.fullest.memory.total()) result.fullest = std::move(plan);
      }
    }
  }
  return result;
}

DryRun plan_of(const config::ParsedOptions& options) {
  config::RunConfig config = options.config;
  set_vocabulary(config);
  return plan(config);
}

void run(const config::ParsedOptions& options) {
  const DryRun result = plan_of(options);
  if (const auto file = options.program_values.find("--dry-run-json");
      file != options.program_values.end()) {
    AtomicFile json(file->second.at(0));
    json.write(dump_json(to_json(result), 1) + "\n");
    json.commit();
  }
  log::print_line(to_text(result));
}

}  // namespace pentatron::training::dry_run
